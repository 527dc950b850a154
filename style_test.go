package quell_test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// longest is the limit of columns of a line of Go; a tab counts as one.
const longest = 140

// TestLinesAreShort finds lines that are too long. Text in backquotes is exempt.
func TestLinesAreShort(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		quoted := quotedLines(source)
		for i, line := range strings.Split(string(source), "\n") {
			if n := utf8.RuneCountInString(line); n > longest && !quoted[i+1] {
				t.Errorf("%s:%d has %d columns; at most %d", path, i+1, n, longest)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// quotedLines are the lines with text in backquotes.
func quotedLines(source []byte) map[int]bool {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(source))
	s.Init(file, source, nil, 0)
	quoted := map[int]bool{}
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			return quoted
		}
		if kind == token.STRING && text[0] == '`' {
			for line := file.Line(at); line <= file.Line(at)+strings.Count(text, "\n"); line++ {
				quoted[line] = true
			}
		}
	}
}
