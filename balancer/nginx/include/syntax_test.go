package include

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestServers(t *testing.T) {
	for _, c := range []struct{ text, want, problem string }{
		{"", "", ""},
		{"# server 1.2.3.4:80;\nkeepalive 8;\n", "", ""},
		{"server 10.0.0.1;server [::1];\n server app weight=3 down max_fails=2; # one", "10.0.0.1:80*1 [::1]:80*1 app:80*3-", ""},
		{"server \"10.0.0.1:81\"\n  weight=7\n  backup;", "10.0.0.1:81*7", ""},
		{"server unix:/run/a.sock;", "unix:/run/a.sock*1", ""},
		{"server 10.0.0.1:80", "", "line 1: a semicolon is missing"},
		{"\n\nserver 'a;", "", "line 3: a quotation mark is not closed"},
		{"server a;\nupstream x { server b; }", "", "line 2: a block"},
		{"server a weight=0;", "", "line 1: \"weight=0\" is no weight"},
		{"server a weight=-3;", "", "no weight"},
		{";;;", "", "line 1: a semicolon ends nothing"},
	} {
		list, err := parse(c.text)
		var found []*Server
		if err == nil {
			found, err = servers(list)
		}
		if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%q: %v, want %s", c.text, err, c.problem)
			continue
		}
		if got := brief(found); err == nil && got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
}

func brief(list []*Server) string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = fmt.Sprintf("%s*%d", s.Address, s.Weight)
		if s.Down {
			words[i] += "-"
		}
	}
	return strings.Join(words, " ")
}

// Whatever a file holds, a server that is rewritten says what was asked for, and nothing else changes.
func TestRewritingChangesOneServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"server a:1 weight=4;", "server b:2 down max_fails=3;", "\n", "  ", "# server c:3;\n",
			"keepalive 16;", "server\n d:4\t;", "zone web 64k;\n", "server 'e:5' \"max_conns=2\";"}), 0, 12).Draw(t, "parts")
		text := strings.Join(parts, "")
		list, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		before, err := servers(list)
		if err != nil || len(before) == 0 {
			return
		}
		i := rapid.IntRange(0, len(before)-1).Draw(t, "which")
		weight, down := rapid.IntRange(1, 100).Draw(t, "weight"), rapid.Bool().Draw(t, "down")
		list, err = parse(apply(text, []change{{before[i].start, before[i].end, before[i].with(weight, down)}}))
		if err != nil {
			t.Fatal(err)
		}
		after, err := servers(list)
		before[i].Weight, before[i].Down = weight, down
		if err != nil || brief(after) != brief(before) {
			t.Fatalf("%v: %s, want %s", err, brief(after), brief(before))
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"server a;", "server 'a", "{", "\\", "server a\\;b;", "#", "server \"a b\" weight=2;"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parse(text)
		if err != nil {
			return
		}
		end := 0
		for _, d := range list {
			if d.start < end || d.end <= d.start || d.end > len(text) || text[d.end-1] != ';' {
				t.Fatalf("%q: a directive from %d to %d", text, d.start, d.end)
			}
			end = d.end
		}
	})
}
