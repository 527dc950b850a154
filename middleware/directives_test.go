package middleware

import (
	"maps"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func linesOf(k Kind) directives { return directives{line: k.Defaults().server.line} }

func TestParametersInFiles(t *testing.T) {
	for _, c := range []struct {
		name, content string
		kind          Kind
		parameter     string
		has           float64 // -1: no number
		becomes       string  // with the value 42
	}{
		{"apache", "A 1\nMaxRequestWorkers 150\nB 2\n", Apache, "MaxRequestWorkers", 150, "A 1\nMaxRequestWorkers 42\nB 2\n"},
		{"in a section, in other letters", "<IfModule x>\n\tmaxrequestworkers\t  150  \r\n</IfModule>", Apache, "MaxRequestWorkers", 150,
			"<IfModule x>\n\tmaxrequestworkers\t  42  \r\n</IfModule>"},
		{"a comment does not count", "# MaxRequestWorkers: the most\nMaxRequestWorkers 150", Apache, "MaxRequestWorkers", 150,
			"# MaxRequestWorkers: the most\nMaxRequestWorkers 42"},
		{"nor does a longer name", "MaxKeepAliveTimeouts 3\nKeepAliveTimeout 5\nKeepAliveTimeoutX 7\n", Apache, "KeepAliveTimeout", 5,
			"MaxKeepAliveTimeouts 3\nKeepAliveTimeout 42\nKeepAliveTimeoutX 7\n"},
		{"milliseconds are no number", "KeepAliveTimeout 500ms\n", Apache, "KeepAliveTimeout", -1, "KeepAliveTimeout 42\n"},
		{"php-fpm", "[www]\npm = dynamic\npm.max_children = 5\n;pm.max_children = 9\n", PHPFPM, "pm.max_children", 5,
			"[www]\npm = dynamic\npm.max_children = 42\n;pm.max_children = 9\n"},
		{"a dot is a dot", "pmxmax_children=9\npm.max_children=\"5\" ; most\n", PHPFPM, "pm.max_children", 5,
			"pmxmax_children=9\npm.max_children=\"42\" ; most\n"},
		{"nginx", "worker_processes auto;\nevents { worker_connections 768; multi_accept on; }\n", Nginx, "worker_connections", 768,
			"worker_processes auto;\nevents { worker_connections 42; multi_accept on; }\n"},
		{"a word", "user x;worker_processes auto;\n", Nginx, "worker_processes", -1, "user x;worker_processes 42;\n"},
		{"behind a comment", "pid x; # worker_processes 1;\nworker_processes 2 ;\n", Nginx, "worker_processes", 2,
			"pid x; # worker_processes 1;\nworker_processes 42 ;\n"},
	} {
		d := linesOf(c.kind)
		values, err := d.values(c.content, []string{c.parameter}, nil)
		v, known := values[c.parameter]
		if err != nil || known != (c.has >= 0) || known && v != c.has {
			t.Errorf("%s: has %v, %v", c.name, values, err)
		}
		if got, err := d.with(c.content, map[string]float64{c.parameter: 42}); err != nil || got != c.becomes {
			t.Errorf("%s: became %q, %v", c.name, got, err)
		}
	}
}

func TestParametersThatCannotBeChanged(t *testing.T) {
	for content, want := range map[string]string{
		"":                    "it does not set KeepAliveTimeout: write the present value there",
		"KeepAliveTimeout\n":  "does not set",
		"#KeepAliveTimeout 5": "does not set",
		"KeepAliveTimeout 5\nx\n KeepAliveTimeout 6\n": "it sets KeepAliveTimeout 2 times: keep one of them",
	} {
		_, err := linesOf(Apache).values(content, []string{"KeepAliveTimeout"}, nil)
		_, other := linesOf(Apache).with(content, map[string]float64{"KeepAliveTimeout": 1})
		for _, err := range []error{err, other} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", content, err)
			}
		}
	}
}

// TestChangesKeepTheRest checks that a changed value is read back, and that nothing else in the file changes.
func TestChangesKeepTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		junk := rapid.StringMatching(`([ #;{}a-z.]{0,12}\n){0,4}`)
		before, after := junk.Draw(t, "before"), junk.Draw(t, "after")
		content := before + "worker_processes auto;\n" + after
		d := linesOf(Nginx)
		if _, err := d.values(content, []string{"worker_processes"}, nil); err != nil {
			return
		}
		v := float64(rapid.IntRange(0, math.MaxInt32).Draw(t, "value"))
		changed, err := d.with(content, map[string]float64{"worker_processes": v})
		if err != nil {
			t.Fatal(err)
		}
		values, err := d.values(changed, []string{"worker_processes"}, nil)
		if err != nil || !maps.Equal(values, map[string]float64{"worker_processes": v}) {
			t.Fatalf("%q has %v, %v", changed, values, err)
		}
		if changed != before+"worker_processes "+number(v)+";\n"+after {
			t.Fatalf("%q became %q", content, changed)
		}
	})
}

func FuzzDirectives(f *testing.F) {
	f.Add("MaxRequestWorkers 150\n")
	f.Add("pm.max_children = 5\nworker_processes auto;")
	f.Fuzz(func(t *testing.T, content string) {
		for _, k := range []Kind{Apache, PHPFPM, Nginx} {
			d := linesOf(k)
			for _, name := range k.Defaults().server.known {
				if _, err := d.values(content, []string{name}, nil); err != nil {
					continue
				}
				changed, err := d.with(content, map[string]float64{name: 7})
				if err != nil {
					t.Fatal(err)
				}
				if values, err := d.values(changed, []string{name}, nil); err != nil || values[name] != 7 {
					t.Fatalf("%s %s: %q became %q: %v, %v", k.Name, name, content, changed, values, err)
				}
			}
		}
	})
}
