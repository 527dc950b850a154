package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
)

// pageTable returns the cells of a row of a results page: the first row below a heading that begins with a name. An empty heading is the
// page's beginning.
func pageTable(t *testing.T, page, heading, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "results", page))
	if err != nil {
		t.Fatal(err)
	}
	_, below, _ := strings.Cut(string(text), heading)
	for line := range strings.Lines(below) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] == name {
			return cells
		}
	}
	t.Fatalf("%s has no row %s below %q", page, name, heading)
	return nil
}

// first returns the number at the beginning of a cell such as "5 s (0 to 5)" or "4.3 ± 2.3".
func first(cell string) string { return strings.Fields(cell)[0] }

// numbers finds the figures of a text: outside of code and of links' targets, without the commas of thousands.
func numbers(text string) []string {
	for _, without := range []string{"(?s)`[^`]*`", `\]\([^)]*\)`, ","} {
		text = regexp.MustCompile(without).ReplaceAllString(text, "")
	}
	return regexp.MustCompile(`\d+(\.\d+)?`).FindAllString(text, -1)
}

// stands tells whether one of these figures is this one, or rounds to it.
func stands(figure string, among []string) bool {
	_, decimals, _ := strings.Cut(figure, ".")
	return slices.ContainsFunc(among, func(other string) bool {
		v, err := strconv.ParseFloat(other, 64)
		return err == nil && strconv.FormatFloat(v, 'f', len(decimals), 64) == figure
	})
}

// What the latest part of the changelog says of results stands on the page that it names.
func TestFiguresOfTheChangelog(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, latest, _ := strings.Cut(string(text), "\n## ")
	latest, _, _ = strings.Cut(latest, "\n## ")
	link, checked := regexp.MustCompile(`docs/results/([a-z]+\.md)`), 0
	for _, entry := range strings.Split(latest, "\n- ") {
		page := link.FindStringSubmatch(entry)
		if page == nil {
			continue
		}
		found, err := os.ReadFile(filepath.Join("..", "..", "docs", "results", page[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		on := numbers(string(found))
		for _, figure := range numbers(entry) {
			if checked++; !stands(figure, on) {
				t.Errorf("docs/results/%s has no figure %s: %s", page[1], figure, strings.Join(strings.Fields(entry), " "))
			}
		}
	}
	if checked == 0 {
		t.Error("no figure was checked")
	}
}

// The figures in the README are those of the results.
func TestFiguresOfTheREADME(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	readme := strings.Join(strings.Fields(string(text)), " ")
	const random = "## Neighbours at random beside four of five hosts"
	prima := pageTable(t, "haproxy.md", random, "prima/leastconn")
	three, four := pageTable(t, "haproxy.md", random, "static/leastconn x3"), pageTable(t, "haproxy.md", random, "static/leastconn x4")
	noisy := pageTable(t, "learn.md", "", "noisy-neighbour")
	size := prima[5][:len(prima[5])-1] // one decimal
	demo := func(run string) []string { return pageTable(t, "demo.md", "", run) }
	learning, twelve, scaled := demo("prima/leastconn learning"), demo("static/leastconn x12"), demo("hpa (utilization 50%)/leastconn")
	for _, want := range []string{
		fmt.Sprintf("PRIMA missed the target for %s of 150 seconds with %s machines on average", first(prima[2]), size),
		fmt.Sprintf("least connections alone missed it for %s seconds with three machines", first(three[2])),
		fmt.Sprintf("PRIMA misses the target for %s of 80 seconds with %s machines", first(learning[2]), first(learning[1])),
		fmt.Sprintf("as with twelve machines, %s%% and %s%%", first(learning[3]), first(twelve[3])),
		fmt.Sprintf("least connections over all twelve misses it for %s seconds", first(twelve[2])),
		fmt.Sprintf("an autoscaler for %s seconds with %s", first(scaled[2]), first(scaled[1])),
		fmt.Sprintf("misses the target for %s s and training for %s s, on average over [15 seeds]", first(noisy[3]), first(noisy[1])),
	} {
		if !strings.Contains(readme, want) {
			t.Errorf("the README does not say %q", want)
		}
	}
	if first(four[2]) != "0" && strings.Contains(readme, "and met it with four") {
		t.Errorf("four machines missed the target for %s s", first(four[2]))
	}
	if !slices.Contains([]string{"-1%"}, noisy[6]) && strings.Contains(readme, "learning costs 1% less") {
		t.Errorf("learning costs %s", noisy[6])
	}
}

// rounded returns the number at the beginning of a cell, without decimals and signs of percent.
func rounded(t *testing.T, cell string) string {
	t.Helper()
	v, err := strconv.ParseFloat(strings.Trim(first(cell), "+%"), 64)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// The figures on the pages about policies and learning are those of the results.
func TestFiguresOfPolicies(t *testing.T) {
	for page, phrases := range map[string][]string{
		"policies/acs.md": figuresOfACS(t), "policies/dial.md": figuresOfDial(t), "policies/ice.md": figuresOfICE(t),
		"learning.md": figuresOfLearning(t),
	} {
		golden.Says(t, page, phrases...)
	}
}

func figuresOfACS(t *testing.T) []string {
	row := func(title, name string) string {
		text := "| " + title + " |"
		for _, tenants := range []string{"2", "4", "8"} {
			text += " " + first(pageTable(t, "acs.md", "### "+tenants+" tenants, 4 of 4 mixes", name)[1]) + " |"
		}
		return text
	}
	settles := func(name string) []string { return pageTable(t, "acs.md", "### How acs settles", name) }
	waiting, told := settles("acs"), settles("acs, told of progress")
	return []string{
		row("the kernel's own sharing", "kernel"), row("acs by waiting alone", "acs"),
		row("acs that is told of progress, with `solo`", "acs, told of progress"),
		fmt.Sprintf("told of progress, in %s of %s runs none moved by more", told[2], told[1]), "after " + told[3] + " periods of changes",
		fmt.Sprintf("holds in %s of %s runs", waiting[2], waiting[1]),
	}
}

func figuresOfDial(t *testing.T) []string {
	single := func(name string) []string { return pageTable(t, "dial.md", "[dial-single]", name) }
	combined := func(name string) []string { return pageTable(t, "dial.md", "[dial-combined]", name) }
	const prima, tail = "prima, headroom 100%, share proportional, leastconn", "prima, headroom 100%, share tail, leastconn"
	return []string{
		fmt.Sprintf("the p90 of all requests over round robin is %s ms instead of %s, and over least connections %s ms instead of %s",
			rounded(t, combined("dial, roundrobin")[3]), rounded(t, combined("static, roundrobin")[3]),
			rounded(t, combined("dial, leastconn")[3]), rounded(t, combined("static, leastconn")[3])),
		fmt.Sprintf("in `dial-single` for %s to %s%% of the time (static %s to %s%%)", rounded(t, single("dial, leastconn")[1]),
			rounded(t, single("dial, roundrobin")[1]), rounded(t, single("static, leastconn")[1]), rounded(t, single("static, roundrobin")[1])),
		fmt.Sprintf("misses it for %s%% of the time at %s instance-seconds (DIAL: %s)", rounded(t, single(prima)[1]),
			rounded(t, single(prima)[4]), rounded(t, single("dial, leastconn")[4])),
		fmt.Sprintf("In `dial-combined` it is %s%% at %s, and %s%% at %s with `share: tail`", rounded(t, combined(prima)[1]),
			rounded(t, combined(prima)[4]), rounded(t, combined(tail)[1]), rounded(t, combined(tail)[4])),
	}
}

func figuresOfICE(t *testing.T) []string {
	hour := func(name string) string {
		return strings.Trim(pageTable(t, "ice.md", "## An hour of 4 minutes", name)[2], "-%")
	}
	return []string{
		fmt.Sprintf("%s%% shorter than under round robin alone, and %s%% with `floor: 20%%` (trained %s%%); `outlier` makes it %s%% shorter",
			hour("ice without training, floor 60%, roundrobin"), hour("ice without training, floor 20%, roundrobin"),
			hour("ice trained, floor 20%, roundrobin"), hour("outlier beside static, roundrobin")),
		fmt.Sprintf("Over least connections it is %s%% shorter with the trained", hour("ice trained, floor 60%, leastconn")),
	}
}

func figuresOfLearning(t *testing.T) []string {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "results", "learn.md"))
	if err != nil {
		t.Fatal(err)
	}
	good := regexp.MustCompile(`As good as training: (\d+) of 16 .* and (\d+) of 16 after`).FindStringSubmatch(string(text))
	worse := regexp.MustCompile(`windows \(([\d.]+%)\); the goal is at most (\d+%)`).FindStringSubmatch(string(text))
	if good == nil || worse == nil {
		t.Fatal("learn.md has changed its form")
	}
	const stays, prima = "### One neighbour that stays", "prima/leastconn"
	run := func(name string) []string { return pageTable(t, "learn.md", stays, name) }
	return []string{
		"as good in " + good[1] + " of 16 scenarios, at up to", "it is as good in " + good[2] + " of 16.",
		"In " + worse[1] + " of the windows of 20 s", "the goal is " + worse[2],
		fmt.Sprintf("the objective is missed for %s s at %s instance-seconds. Trained PRIMA: %s s at %s.", first(run(prima + " learning")[2]),
			run(prima + " learning")[4], first(run(prima)[2]), run(prima)[4]),
	}
}

// What the README says of the arena is what the page's overview shows.
func TestTheArenaOfTheREADME(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "results", "arena.md"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	scenarios, cheaper, low, high := 0, 0, 100, 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 10 || !strings.HasPrefix(cells[1], " [") {
			continue
		}
		scenarios++
		if strings.TrimSpace(cells[6]) == "less" {
			t.Errorf("a rival that costs as much misses less: %s", line)
		}
		if saved, ok := strings.CutPrefix(strings.TrimSpace(cells[8]), "-"); ok {
			v, err := strconv.Atoi(strings.TrimSuffix(saved, "%"))
			if err != nil {
				t.Fatal(err)
			}
			cheaper, low, high = cheaper+1, min(low, v), max(high, v)
		}
	}
	words := map[int]string{3: "three", 4: "four", 5: "five"}
	text := strings.Join(strings.Fields(string(readme)), " ")
	for _, want := range []string{fmt.Sprintf("%d simulated scenarios", scenarios), "In " + words[cheaper] + " of the scenarios",
		fmt.Sprintf("by %d%% to %d%%", low, high)} {
		if !strings.Contains(text, want) {
			t.Errorf("the README does not say %q", want)
		}
	}
	if seeds := regexp.MustCompile(`\d+ seeds\.`).FindAllString(string(page), -1); len(slices.Compact(seeds)) != 1 ||
		!strings.Contains(text, "with "+strings.TrimSuffix(seeds[0], ".")+" each") {
		t.Errorf("seeds of the sections: %q", seeds)
	}
}

// The README shows what the demo printed with the first seed.
func TestDemoOfTheREADME(t *testing.T) {
	atRoot(t)
	sc := must[*scenario.Scenario](t)(demoScenario())
	var played []scenario.Result
	stored(t, "demo", &played)
	played = played[:len(sc.Runs)]
	for i := range played {
		played[i].Warnings = nil // the page beside it says how busy the machine was
	}
	var printed strings.Builder
	if err := errors.Join(experiment.WriteTable(&printed, sc, played), experiment.WriteNeeded(&printed, sc, played)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "```text\n"+printed.String()+"```\n") {
		t.Errorf("the README does not show\n%s", printed.String())
	}
}
