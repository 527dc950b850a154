package balancer

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestClassOfARequest(t *testing.T) {
	classes := Classes{{Name: "home", Path: "/"}, {Name: "tags", Path: "/tag/*"},
		{Name: "pictures", Path: "*.jpg"}, {Name: "edit", Path: "/event/*/edit"}, {Name: "event", Path: "/event/*"}}
	for target, want := range map[string]string{
		"/": "home", "/?x=/tag/a": "home", "/tag/": "tags", "/tag/a/b?q": "tags", "/tag": OtherClass, "/tag/a.jpg": "tags",
		"/x/a.jpg":      "pictures",
		"/a.jpg?size=3": "pictures", "/event/7/edit": "edit", "/event/7/x/edit": "edit", "/event/edit": "event", "/event/7": "event",
		"http://host:80/tag/a": "tags", "https://host": "home", "*": OtherClass, "": OtherClass, "<BADREQ>": OtherClass,
		"/redirect?to=http://x/tag/": OtherClass, "/tag/http://x": "tags",
	} {
		if got := classes.Of(target); got != want {
			t.Errorf("%q is of class %q, want %q", target, got, want)
		}
	}
	if got := Classes(nil).Of("/"); got != "" {
		t.Errorf("without classes: %q", got)
	}
}

// A pattern matches what the regular expression with .* for each star matches, and itself.
func TestPatternsMatchLikeRegularExpressions(t *testing.T) {
	text := rapid.StringMatching(`[ab/*]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		pattern, request := text.Draw(t, "pattern"), strings.ReplaceAll(text.Draw(t, "path"), "*", "")
		like := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		if got, want := matches(pattern, request), like.MatchString(request); got != want {
			t.Fatalf("%q and %q: %t, want %t", pattern, request, got, want)
		}
		if !matches(pattern, pattern) {
			t.Fatalf("%q does not match itself", pattern)
		}
		if strings.Contains(pattern, "/") || strings.Contains(request, "/") {
			return
		}
		if want, err := path.Match(pattern, request); err == nil && matches(pattern, request) != want {
			t.Fatalf("%q and %q: path.Match says %t", pattern, request, want)
		}
	})
}

func TestMatchesAll(t *testing.T) {
	for pattern, want := range map[string]bool{"*": true, "**": true, "/*": true, "*/*": true, "/**": true, "**/*": true,
		"/": false, "*/": false, "/a*": false, "*/*/*": false, "*.jpg": false, "//*": false} {
		if got := matchesAll(pattern); got != want {
			t.Errorf("%q: %t", pattern, got)
		}
		if want && !(matches(pattern, "/") && matches(pattern, "/a/b.jpg")) {
			t.Errorf("%q does not match every path", pattern)
		}
	}
}

// Patterns that match nothing or everything are told once in each thousand requests, until they match.
func TestClassWatch(t *testing.T) {
	classes := Classes{{Name: "home", Path: "/"}, {Name: "tags", Path: "/tag/*"}}
	var w ClassWatch
	for i, c := range []struct {
		counts map[string]int64
		want   []string // parts of the mistakes
	}{
		{map[string]int64{"home": 999}, nil},
		{map[string]int64{"home": 1}, []string{`1000 of the last 1000 requests match "/"`, `0 of the last 1000 requests match "/tag/*"`}},
		{map[string]int64{"home": 2000}, nil},
		{map[string]int64{"home": 2000, "tags": 1}, nil},
		{map[string]int64{OtherClass: 1500, "home": 1}, []string{`0 of the last 1501 requests match "/tag/*", the path of class tags`}},
		{nil, nil},
	} {
		got := w.Add(classes, c.counts)
		if len(got) != len(c.want) {
			t.Fatalf("step %d: %q, want %q", i, got, c.want)
		}
		for k := range got {
			if !strings.Contains(got[k], c.want[k]) {
				t.Errorf("step %d: %q, want %q", i, got[k], c.want[k])
			}
		}
	}
}
