package quell_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// gone are words that this project used in place of the field's own ones, and what is written instead.
var gone = map[string]string{
	"besides": "beside, in addition to", "callroll": "inventory", "cast": "clients", "climber": "sweep", "entrant": "candidate",
	"entrants": "candidates",
	"gate":     "authenticator, connection limiter", "glance": "subsample, fast step", "glances": "subsamples, fast steps",
	"glimpse": "fast view", "hall": "pool", "hurried": "fast", "hurries": "fast", "leftover": "pending revert",
	"leftovers": "pending reverts", "numb": "stale", "purse": "token bucket, allowance",
	"purses": "token buckets, allowances", "rehearse": "dry run", "rehearsal": "dry run",
	"rehearses": "makes a dry run", "spoil": "exclude, distort", "spoiled": "excluded, distorted", "spoils": "excludes, distorts",
	"surroundings": "environment",
}

// A word part is a word in text, or a part of an identifier. Names in JSON do not count, nor does the column of a page that explains them:
// they stay as they are.
var (
	wordPart = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
	jsonName = regexp.MustCompile("`json:[^`]*`|\"[a-z_]+\":|^\\| `[a-z_.]+` \\|")
)

func TestOwnWordsStayGone(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || path == "CHANGELOG.md" || path == "words_test.go",
			!slices.Contains([]string{".go", ".md", ".tmpl"}, filepath.Ext(path)):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(data), "\n") {
			for _, word := range wordPart.FindAllString(jsonName.ReplaceAllString(line, ""), -1) {
				if instead, ok := gone[strings.ToLower(word)]; ok {
					t.Errorf("%s:%d: %q; write %s", path, i+1, word, instead)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
