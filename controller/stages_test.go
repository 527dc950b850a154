package controller

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// ARCHITECTURE.md shows the stages as they are.
func TestStagesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| stage | decision | fast | watch |\n|---|---|---|---|\n")
	for _, s := range stages {
		mark := func(o occasion) string {
			if s.on&o != 0 {
				return "x"
			}
			return ""
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", s.name, mark(decision), mark(fastStep), mark(watch))
	}
	if !strings.Contains(string(page), table.String()) {
		t.Errorf("ARCHITECTURE.md should have\n\n%s", &table)
	}
}
