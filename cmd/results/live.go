package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// notMeasured begins the text of a part that was not measured on this machine.
const notMeasured = "Not measured yet"

// What the functions live and endlive of templates put around a part that was measured on machines. Pages do not have these characters.
const (
	liveBegins = "\x02"
	liveNamed  = "\x03"
	liveEnds   = "\x04"
)

var liveText = regexp.MustCompile("(?s)" + liveBegins + "([^" + liveNamed + "]*)" + liveNamed + "(.*?)" + liveEnds)

// livePages are the parts that were measured on machines, by page and name. Their records stay on the machine that measured them, so
// without this file a page that is written elsewhere would lose them.
type livePages map[string]map[string]livePage

// livePage is the text of a part, and the commit at which it was measured.
type livePage struct {
	Text   string `json:"text,omitempty"` // empty: the part is the whole page
	Commit string `json:"commit"`
}

// wholePage is the name of the part of a page whose figures are all measured, and not kept apart.
const wholePage = "page"

// wholePages are these pages.
var wholePages = []string{"cluster", "demo", "door", "scale", "speed", "twin"}

// livePath returns the file. One page is in the folder above the others.
func livePath(dir string) string {
	if filepath.Base(dir) != "results" {
		dir = filepath.Join(dir, "results")
	}
	return filepath.Join(dir, "live.json")
}

// keepLive removes the marks of a page's parts, and adds from which commits they are. A part that was measured here goes to the file; the
// text of any other comes from there.
func keepLive(dir, page, commit string, text []byte) ([]byte, error) {
	pages := livePages{}
	if _, err := readJSON(livePath(dir), &pages); err != nil {
		return nil, err
	}
	parts := maps.Clone(pages[page])
	if parts == nil {
		parts = map[string]livePage{}
	}
	kept := liveText.ReplaceAllStringFunc(string(text), func(part string) string {
		of := liveText.FindStringSubmatch(part)
		name, now := of[1], of[2]
		before, known := parts[name]
		switch {
		case !strings.Contains(now, notMeasured):
			if now != before.Text {
				parts[name] = livePage{now, commit}
			}
			return now
		case known:
			return before.Text
		}
		return now
	})
	if slices.Contains(wholePages, page) && parts[wholePage].Commit != commit {
		parts[wholePage] = livePage{Commit: commit}
	}
	if len(parts) == 0 {
		return []byte(kept), nil
	}
	kept = strings.TrimRight(kept, "\n") + "\n\n" + commitsOf(parts) + "\n"
	if maps.Equal(parts, pages[page]) {
		return []byte(kept), nil
	}
	pages[page] = parts
	return []byte(kept), writeJSON(livePath(dir), pages)
}

// commitsOf says at which commits parts were measured.
func commitsOf(parts map[string]livePage) string {
	by := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		by[parts[name].Commit] = append(by[parts[name].Commit], name)
	}
	commits := slices.Sorted(maps.Keys(by))
	if len(commits) == 1 {
		return "What was measured on machines is from commit " + commits[0] + "."
	}
	var list []string
	for _, commit := range commits {
		list = append(list, fmt.Sprintf("%s (%s)", commit, strings.Join(by[commit], ", ")))
	}
	return "What was measured on machines is from commits " + strings.Join(list, ", ") + "."
}

// commitHere returns the commit of the code, or "unknown".
func commitHere() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return string(bytes.TrimSpace(out))
}

// measuredCode are the folders whose code the pages measure.
var measuredCode = []string{"agent", "balancer", "controller", "credit", "lab", "life", "limit", "model", "policy", "probe",
	"route", "sensor"}

// tellStale prints which measured parts are older than the code that they measure. It needs git's history; without it, it says so.
func tellStale(ctx context.Context, dir string) error {
	pages := livePages{}
	if _, err := readJSON(livePath(dir), &pages); err != nil {
		return err
	}
	since := map[string]int{}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		newest := 0
		var names []string
		for _, name := range slices.Sorted(maps.Keys(pages[page])) {
			commit := pages[page][name].Commit
			if _, counted := since[commit]; !counted {
				since[commit] = changesSince(ctx, commit)
			}
			if n := since[commit]; n != 0 {
				names, newest = append(names, name), cmp.Or(newest, n)
				newest = min(newest, n)
			}
		}
		switch old := fmt.Sprintf("page %s: %d of %d measured parts", page, len(names), len(pages[page])); {
		case newest < 0:
			fmt.Println(old, "are from commits that git does not know")
		case newest > 0:
			fmt.Println(old, "are older than the code that they measure, by at least", newest, "commits")
		}
	}
	return nil
}

// changesSince counts the commits after a commit that changed measured code; -1: not known.
func changesSince(ctx context.Context, commit string) int {
	out, err := exec.CommandContext(ctx, "git", append([]string{"rev-list", "--count", commit + "..HEAD", "--"}, measuredCode...)...).Output()
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(out)))
	if err != nil {
		return -1
	}
	return n
}
