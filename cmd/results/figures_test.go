package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
	for _, want := range []string{
		fmt.Sprintf("PRIMA missed the target for %s of 150 seconds with %s machines on average", first(prima[2]), size),
		fmt.Sprintf("least connections alone missed it for %s seconds with three machines", first(three[2])),
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
