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

// pageTable returns the cells of a row of a results page: the first row below a heading that begins with these cells. An empty heading is
// the page's beginning.
func pageTable(t *testing.T, page, heading string, names ...string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "results", page))
	if err != nil {
		t.Fatal(err)
	}
	_, below, _ := strings.Cut(string(text), heading)
	for line := range strings.Lines(below) {
		if cells := cellsOf(line); len(cells) >= len(names) && slices.Equal(cells[:len(names)], names) {
			return cells
		}
	}
	t.Fatalf("%s has no row %q below %q", page, names, heading)
	return nil
}

// cellsOf are the cells of a line of a table. Another line is one cell.
func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// first returns the number at the beginning of a cell such as "5 s (0 to 5)" or "4.3 ± 2.3".
func first(cell string) string { return strings.Fields(cell)[0] }

// aFigure is a number with its unit, if it has one that is compared.
type aFigure struct{ number, unit string }

var (
	figurePattern = regexp.MustCompile(`(\d+(?:\.\d+)?)(?:\s?(%|ms\b|s\b|MB\b|Mbit/s\b))?( to |, | and |-)?`)
	headedUnit    = regexp.MustCompile(`(?:, (%|ms|s)| \((%|ms|s)\))$`)
)

// numbers finds the figures of a text: outside of code and of links' targets, without the commas of thousands. A number has the unit of
// the next one in a range or a list, and that of its column.
func numbers(text string) (found []aFigure) {
	for _, without := range []string{"(?s)`[^`]*`", `\]\([^)]*\)`} {
		text = regexp.MustCompile(without).ReplaceAllString(text, "")
	}
	text = regexp.MustCompile(`(\d),(\d{3})`).ReplaceAllString(text, "$1$2")
	var units []string // of the columns of a table
	prose := ""
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			units, prose = nil, prose+line
			continue
		}
		cells := cellsOf(line)
		if units == nil {
			for _, cell := range cells {
				units = append(units, strings.Trim(headedUnit.FindString(cell), ", ()"))
			}
		}
		for i, cell := range cells {
			unit := ""
			if i < len(units) {
				unit = units[i]
			}
			found = append(found, figuresIn(cell, unit)...)
		}
	}
	return append(found, figuresIn(prose, "")...)
}

// figuresIn finds figures. Those without a unit of their own have this one.
func figuresIn(text, unit string) (found []aFigure) {
	all := figurePattern.FindAllStringSubmatchIndex(text, -1)
	next := ""
	for i := len(all) - 1; i >= 0; i-- {
		at := all[i]
		own, joined := unit, at[6] >= 0 && i+1 < len(all) && all[i+1][0] == at[1]
		switch {
		case at[4] >= 0:
			own = text[at[4]:at[5]]
		case joined:
			own = next
		}
		found, next = append(found, aFigure{text[at[2]:at[3]], own}), own
	}
	return found
}

// stands tells whether one of these figures is this one, or rounds to it. Units are the same, if both have one.
func stands(figure aFigure, among []aFigure) bool {
	_, decimals, _ := strings.Cut(figure.number, ".")
	return slices.ContainsFunc(among, func(other aFigure) bool {
		v, err := strconv.ParseFloat(other.number, 64)
		return err == nil && strconv.FormatFloat(v, 'f', len(decimals), 64) == figure.number && (figure.unit == "" || other.unit == figure.unit)
	})
}

// A figure stands on a page only with its unit.
func TestFiguresHaveUnits(t *testing.T) {
	page := numbers("It took 12.4 s, 5 to 7% of it at 1,200 MB.\n\n| run | p99, ms | cost |\n|---|---|---|\n| a | 31 (30 to 33) | 7 |\n")
	for figure, want := range map[aFigure]bool{
		{"12", "s"}: true, {"12", ""}: true, {"12", "%"}: false, {"5", "%"}: true, {"7", "%"}: true, {"7", "s"}: false, {"7", ""}: true,
		{"31", "ms"}: true, {"33", "ms"}: true, {"31", "s"}: false, {"1200", "MB"}: true, {"8", ""}: false,
	} {
		if stands(figure, page) != want {
			t.Errorf("%+v: %t, want %t", figure, !want, want)
		}
	}
}

// earlier are figures of plays that the page has no longer, by page. The changelog's entries are of that time.
var earlier = map[string][]aFigure{"group.md": {{"45", "%"}, {"90", "%"}}}

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
			if checked++; !slices.Contains(earlier[page[1]], figure) && !stands(figure, on) {
				t.Errorf("docs/results/%s has no figure %s: %s", page[1], figure.number+figure.unit, strings.Join(strings.Fields(entry), " "))
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
	weak := pageTable(t, "haproxy.md", "## Weak and strong neighbours", "prima/leastconn")
	weakAlone := pageTable(t, "haproxy.md", "## Weak and strong neighbours", "static/leastconn x3")
	const moves, byChance, weakOnes = "## A neighbour that moves", "## Neighbours at random", "## Weak and strong"
	fleet := func(heading, run string) []string { return pageTable(t, "fleet.md", heading, run) }
	const own, all, scaler = "prima/leastconn learning", "static/leastconn x12", "hpa (utilization 40%)/leastconn"
	reached := strings.Count(pageText(t, "fleet.md"), "| reached |")
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
		fmt.Sprintf("beside weak neighbours PRIMA's p99 was %s ms, in place of %s", rounded(t, weak[8]), rounded(t, weakAlone[8])),
		fmt.Sprintf("beside a neighbour that moves, PRIMA missed it for %s of 100 seconds with %s machines", first(fleet(moves, own)[2]),
			tenths(t, fleet(moves, own)[5])),
		fmt.Sprintf("under least connections missed it for %s seconds, an autoscaler for %s", first(fleet(moves, all)[2]),
			first(fleet(moves, scaler)[2])),
		fmt.Sprintf("%s in place of %s with twelve machines, and %s in place of %s and the autoscaler's %s", fleet(byChance, own)[3],
			fleet(byChance, all)[3], fleet(weakOnes, own)[3], fleet(weakOnes, all)[3], fleet(weakOnes, scaler)[3]),
	} {
		if !strings.Contains(readme, want) {
			t.Errorf("the README does not say %q", want)
		}
	}
	if reached != 1 {
		t.Errorf("the README says that the goal is reached in one of eight comparisons; the page has it for %d rivals", reached)
	}
	tail := valueOf(t, weak[8]) / valueOf(t, weakAlone[8])
	if want := fmt.Sprintf("beside weak neighbours its p99 is %.0f times as long", tail); !strings.Contains(pageText(t, "haproxy.md"), want) {
		t.Errorf("haproxy.md does not say %q", want)
	}
	if first(four[2]) != "0" && strings.Contains(readme, "and met it with four") {
		t.Errorf("four machines missed the target for %s s", first(four[2]))
	}
	if !slices.Contains([]string{"-1%"}, noisy[6]) && strings.Contains(readme, "learning costs 1% less") {
		t.Errorf("learning costs %s", noisy[6])
	}
}

// pageText is a results page.
func pageText(t *testing.T, page string) string {
	t.Helper()
	return string(must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "docs", "results", page))))
}

// valueOf is the number at the beginning of a cell. rounded and tenths are its texts without decimals, and with one.
func valueOf(t *testing.T, cell string) float64 {
	t.Helper()
	return must[float64](t)(strconv.ParseFloat(strings.Trim(first(cell), "+%"), 64))
}
func rounded(t *testing.T, cell string) string {
	return strconv.FormatFloat(valueOf(t, cell), 'f', 0, 64)
}
func tenths(t *testing.T, cell string) string {
	return strconv.FormatFloat(valueOf(t, cell), 'f', 1, 64)
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
	const computes, parameters = "### Table I: a neighbour that computes", "### Table I: server parameters"
	live := func(heading, scheduling, run string) []string {
		return pageTable(t, "ice.md", heading, scheduling, run)
	}
	against := func(heading, scheduling, run string) string {
		return strings.Trim(live(heading, scheduling, run)[5], "+-%")
	}
	const alone = "server parameters alone (IC²)"
	return []string{
		fmt.Sprintf("With ICE it is %s%% shorter than that, over three seeds", against(computes, "roundrobin", "ICE")),
		fmt.Sprintf("p99 of all requests falls from %s to %s ms", live(computes, "roundrobin", "static")[7],
			live(computes, "roundrobin", "ICE")[7]),
		fmt.Sprintf("was %s%% shorter in one series and %s%% longer in the other, of three seeds each", against(computes, "leastconn", "ICE"),
			against(parameters, "leastconn", "ICE")),
		fmt.Sprintf("With `floor: 20%%` it was %s%% longer", against(computes, "leastconn", "ICE, floor 20%")),
		fmt.Sprintf("was %s%% longer than static's, with each of three seeds, and the p99 of all requests %s ms (static: %s)",
			against(parameters, "leastconn", alone), live(parameters, "leastconn", alone)[7], live(parameters, "leastconn", "static")[7]),
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
