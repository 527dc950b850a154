package main

import (
	"bytes"
	"strings"
	"testing"
)

// Every command that people call is in a group, and the list fits 80 columns.
func TestCommandsAreGrouped(t *testing.T) {
	reached := false
	root := newRoot(&reached)
	for _, cmd := range root.Commands() {
		if !cmd.Hidden && cmd.GroupID == "" && cmd.Name() != "version" && cmd.Name() != "help" {
			t.Errorf("quell %s is in no group of commandGroups", cmd.Name())
		}
	}
	var out bytes.Buffer
	if status := run(t.Context(), nil, nil, &out, &out); status != 0 {
		t.Fatalf("status %d: %s", status, &out)
	}
	_, list, _ := strings.Cut(out.String(), "Usage:")
	for line := range strings.Lines(list) {
		if len(line) > 81 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	if first, second := strings.Index(list, "\n  demo "), strings.Index(list, "\n  sim "); first < 0 || first > second {
		t.Errorf("what a newcomer needs is not first:\n%s", list)
	}
}
