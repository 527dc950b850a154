package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each page of a policy has a row for every table and figure of its paper.
func TestPagesHaveTheirPapersTablesAndFigures(t *testing.T) {
	for page, has := range map[string]struct{ figures, tables int }{
		"prima": {3, 10}, "dial": {15, 1}, "ice": {9, 1}, "acs": {11, 13}, "mrburst": {4, 2},
	} {
		rows := paperRows(t, page)
		for kind, n := range map[string]int{"Figure": has.figures, "Table": has.tables} {
			for i := 1; i <= n; i++ {
				if !slices.ContainsFunc(rows, func(row []string) bool { return slices.Contains(numbersOf(kind, row[0]), i) }) {
					t.Errorf("%s.md says nothing of the paper's %s %d", page, strings.ToLower(kind), i)
				}
			}
		}
		for _, row := range rows {
			if row[len(row)-1] == "" {
				t.Errorf("%s.md: %q without a state", page, row[0])
			}
		}
	}
}

// paperRows are the rows of a page's table of what is in its paper.
func paperRows(t *testing.T, page string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "results", page+".md"))
	if err != nil {
		t.Fatal(err)
	}
	_, below, _ := strings.Cut(string(text), "\n## The paper's tables and figures\n")
	section, _, _ := strings.Cut(below, "\n## ")
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"); len(cells) > 1 && strings.HasPrefix(line, "| ") {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

// numbersOf returns the numbers after a word: "Figures 1 and 3, Tables IV to VI" has the tables 4, 5, 6.
func numbersOf(kind, text string) (list []int) {
	const number = `[0-9]+|[IVX]+`
	for _, found := range regexp.MustCompile(kind+`s? ((?:`+number+`)(?:(?: to | and |, )(?:`+number+`)\b)*)`).FindAllStringSubmatch(text, -1) {
		before := 0
		for _, part := range regexp.MustCompile(`(to )?(`+number+`)`).FindAllStringSubmatch(found[1], -1) {
			n := arabic(part[2])
			if part[1] != "" {
				for i := before + 1; i < n; i++ {
					list = append(list, i)
				}
			}
			list, before = append(list, n), n
		}
	}
	return list
}

// arabic reads a number, also a Roman one up to X.
func arabic(text string) int {
	if i := slices.Index(strings.Fields("I II III IV V VI VII VIII IX X"), text); i >= 0 {
		return i + 1
	}
	n, _ := strconv.Atoi(text)
	return n
}

func TestNumbersOf(t *testing.T) {
	for text, want := range map[string][]int{
		"Figures 1 and 3, Table II": {2}, "Tables III and IV, round robin": {3, 4}, "Tables VIII to X, scaling": {8, 9, 10},
		"Table I, Figures 6 and 7": {1}, "Figure 1, Tables 1 to 4": {1, 2, 3, 4}, "Tables 1, 5 and 7": {1, 5, 7}, "Detection": nil,
		"Table 12 of 13": {12},
	} {
		if got := numbersOf("Table", text); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
