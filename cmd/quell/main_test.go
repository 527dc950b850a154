package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/strictjson"
)

// TestMain puts this test binary on the path under the name quell, so that scripts and the README's commands run the
// real command line in its own process.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"quell": main})
}

// TestScripts runs the command line as a user does: one file in testdata/script per topic.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", filepath.Join(repository(t), "examples"))
			env.Setenv("TMPDIR", env.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"plans": plans,
			"tear":  tear,
		},
	})
}

// repository is the root of this checkout.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// exits runs `exits STATUS PROGRAM [ARGS...]` and checks the exit status; stdout and stderr then hold the program's
// output.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM [ARGS...]")
	}
	status := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		status = statusOf(err)
	}
	if fmt.Sprint(status) != args[0] {
		ts.Fatalf("exit status %d, want %s", status, args[0])
	}
}

// statusOf is the exit status in the error of a command; -1 if it never ran.
func statusOf(err error) int {
	exit, ok := err.(interface{ ExitCode() int })
	if !ok {
		return -1
	}
	return exit.ExitCode()
}

// tear cuts off the end of a file's last line.
func tear(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: tear FILE")
	}
	const torn = 20
	path := ts.MkAbs(args[0])
	info, err := os.Stat(path)
	ts.Check(err)
	ts.Check(os.Truncate(path, info.Size()-torn))
}

// plans converts the plans on stdout to lines that a person can compare, and writes them to the named file.
func plans(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: plans FILE")
	}
	var lines []string
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		var plan quell.Plan
		ts.Check(strictjson.Decode([]byte(line), &plan))
		lines = append(lines, brief(plan))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}

// brief is a plan in one line: its second, weights in thousandths, and its change of the group.
func brief(p quell.Plan) string {
	parts := []string{p.At.Format("04:05")}
	for _, id := range slices.Sorted(maps.Keys(p.Weights)) {
		parts = append(parts, fmt.Sprintf("%s=%.3f", id, p.Weights[id]))
	}
	if !p.Group.Empty() {
		change, _ := json.Marshal(p.Group)
		parts = append(parts, string(change))
	}
	return strings.Join(parts, " ")
}
