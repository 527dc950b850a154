package controller

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// given finds codes of reasons in Go code.
var given = regexp.MustCompile(`(?:[rR]eason\((?:[\w.&]+, )?|Code: *|Reason *= *)"([a-z_]+[a-z])"`)

// Every code with which a policy of a service or the controller gives a reason has a counter from the start.
func TestEveryCodeIsCounted(t *testing.T) {
	found := map[string]bool{}
	for _, dir := range []string{"../policy", "."} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range given.FindAllSubmatch(text, -1) {
				found[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < 30 {
		t.Fatalf("only %d codes were found", len(found))
	}
	for code := range found {
		host := strings.HasPrefix(code, "acs_") || strings.HasPrefix(code, "burst_") // agents decide about control groups
		if !host && knownCode(code) == otherCode {
			t.Errorf("%s is missing among the codes that are counted", code)
		}
	}
	if !slices.IsSorted(codes) || knownCode("nonsense") != otherCode {
		t.Error("the codes are not in order")
	}
}
