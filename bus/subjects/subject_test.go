package subjects

import (
	"regexp"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

func TestEscape(t *testing.T) {
	for name, want := range map[string]string{
		"video":       "video",
		"I-7":         "I-7",
		"10.0.0.1:80": "10_2e0_2e0_2e1_3a80",
		"a b":         "a_20b",
		"a_20b":       "a_5f20b", // must differ from the one above
		"*":           "_2a",
		">":           "_3e",
		"../etc":      "_2e_2e_2fetc",
		"ü":           "_c3_bc",
	} {
		if got := Escape(name); got != want {
			t.Errorf("escape(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestUnescapeAcceptsOnlyWhatEscapeProduces(t *testing.T) {
	for _, token := range []string{"_", "_2", "_zz", "_2E", "_61", "a.b", "a b", "ü"} {
		if name, err := Unescape(token); err == nil {
			t.Errorf("unescape(%q) = %q, want an error", token, name)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, name := range []string{"video", "a.b", "_2e", "", "\x00", "*.>", "ü"} {
		f.Add(name)
	}
	safe := regexp.MustCompile(`^[A-Za-z0-9_-]*$`)
	f.Fuzz(func(t *testing.T, name string) {
		token := Escape(name)
		if !safe.MatchString(token) {
			t.Fatalf("escape(%q) = %q is not safe", name, token)
		}
		if back, err := Unescape(token); err != nil || back != name {
			t.Fatalf("%q came back as %q, %v", name, back, err)
		}
		if back, err := Unescape(name); err == nil && Escape(back) != name {
			t.Fatalf("unescape accepted %q, which Escape does not produce", name)
		}
	})
}

func TestNamesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, r := range []quell.Reading{
		{Instance: "i", Source: quell.FromAgent},
		{Service: "s", Source: quell.FromAgent},
		{Service: long, Instance: "i", Source: quell.FromAgent},
		{Service: "s", Instance: long, Source: quell.FromAgent},
	} {
		if subject, err := Reading(r.Service, r.Instance, r.Source); err == nil {
			t.Errorf("service %.3q, instance %.3q gives subject %.20q", r.Service, r.Instance, subject)
		}
	}
}
