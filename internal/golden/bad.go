package golden

import (
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// BadFiles reads every file of a pattern, each of which must have mistakes. It compares the error with the file of the same name
// that ends in .err. Of a list of known values that begins with one of growing, only that one is compared.
func BadFiles(t *testing.T, pattern string, read func(t *testing.T, file string) error, growing ...string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad files: %v", err)
	}
	for _, file := range files {
		stem := strings.TrimSuffix(file, filepath.Ext(file))
		t.Run(filepath.Base(stem), func(t *testing.T) {
			err := read(t, file)
			Mistakes(t, err)
			text := err.Error() + "\n"
			for _, first := range growing {
				list := regexp.MustCompile(`\(known: ` + regexp.QuoteMeta(first) + `, [^)]*\)`)
				text = list.ReplaceAllLiteralString(text, "(known: "+first+", ...)")
			}
			Compare(t, stem+".err", []byte(text))
		})
	}
}

// Mistakes returns the problems that an error lists. If the error is not a *quell.UserError that wraps setting.Problems, the test
// fails.
func Mistakes(t testing.TB, err error) setting.Problems {
	t.Helper()
	var user *quell.UserError
	var list setting.Problems
	if !errors.As(err, &user) || !errors.As(err, &list) || len(list) == 0 {
		t.Fatalf("got %v, want a *quell.UserError that wraps Problems", err)
	}
	return list
}
