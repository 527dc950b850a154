package measure

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the table of docs/what-counts.md")

const (
	page       = "../../docs/what-counts.md"
	tableFirst = "<!-- made from balancer/measure/rules.go by `go test ./balancer/measure -update` -->\n"
	tableLast  = "<!-- end of the table -->\n"
)

// TestThePageOfTheRules holds the table in docs/what-counts.md against the rules.
func TestThePageOfTheRules(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| a request counts as | if | because | HAProxy | built-in balancer |\n|---|---|---|---|---|\n")
	for _, r := range Rules {
		fmt.Fprintf(&b, "| **%s** | %s | %s | %s | %s |\n", r.Verdict, r.Name, r.Because, r.HAProxy, r.Builtin)
	}
	b.WriteString("\n")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tableFirst)
	table, after, ends := strings.Cut(rest, tableLast)
	switch {
	case !begins || !ends:
		t.Fatalf("%s lacks the marks of its table", page)
	case table == b.String():
	case *update:
		if err := os.WriteFile(page, []byte(before+tableFirst+b.String()+tableLast+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what the rules say: run go test ./balancer/measure -update", page)
	}
}

func TestJudge(t *testing.T) {
	slow := Ending{By: ByClient, Phase: InWaiting, Waited: time.Second, Patience: time.Second}
	quick := slow
	quick.Waited--
	for _, c := range []struct {
		what string
		e    Ending
		want Verdict
	}{
		{"an answer", Ending{Status: 200}, Response},
		{"not found", Ending{Status: 404}, Response},
		{"too many requests", Ending{Status: 429}, Limited},
		{"refused after it was moved", Ending{Status: 503, Moved: true}, Shed},
		{"the instance's 500", Ending{Status: 500}, Failure},
		{"no valid status", Ending{Status: 0}, Failure},
		{"no connection, and a 503 of the balancer", Ending{By: ByInstance, Phase: InWaiting, Status: 503}, Failure},
		{"a refusal by the balancer", Ending{By: ByBalancer, Phase: InWaiting, Status: 503}, Nothing},
		{"a queue time-out", Ending{By: ByBalancer, Phase: InQueue, Status: 503}, Demand},
		{"a quick cancel", quick, Demand},
		{"a client that had waited", slow, Failure},
		{"a client that left the queue late", Ending{By: ByClient, Phase: InQueue, Waited: time.Hour, Patience: 1, Status: 503}, Demand},
		{"a stalled upload", Ending{By: ByClient, Phase: InUpload, Waited: time.Hour, Patience: 1, Status: 408}, Demand},
		{"a download broken off", Ending{By: ByClient, Phase: InAnswer, Status: 200}, Demand},
		{"the same, for the first byte", Ending{By: ByClient, Phase: InAnswer, Status: 200, FirstByte: true}, Response},
		{"shutdown sessions", Ending{By: ByPerson, Phase: InAnswer, Status: 200}, Demand},
		{"a WebSocket", Ending{Status: 101}, Demand},
		{"a moved request", Ending{Status: 200, Moved: true}, Demand},
		{"events", Ending{Status: 200, Stream: true}, Demand},
		{"events, for the first byte", Ending{Status: 200, Stream: true, FirstByte: true}, Response},
		{"a failure of a class outside the objective", Ending{Status: 500, Aside: true}, Failure},
		{"a class outside the objective", Ending{Status: 200, Aside: true, FirstByte: true}, Demand},
		{"a line before the end", Ending{Status: 200, Early: true}, Demand},
		{"a line before the end, for the first byte", Ending{Status: 200, Early: true, FirstByte: true}, Response},
	} {
		if got := Judge(c.e); got != c.want {
			t.Errorf("%s counts as %s, want %s", c.what, got, c.want)
		}
	}
}

// Every rule decides some request, so none is hidden by an earlier one; and every request gets a verdict.
func TestEveryRuleDecides(t *testing.T) {
	decided := make([]bool, len(Rules))
	draw := rapid.Custom(func(t *rapid.T) Ending {
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		return Ending{
			By: Ender(rapid.IntRange(0, int(ByPerson)).Draw(t, "by")), Phase: Phase(rapid.IntRange(0, int(InAnswer)).Draw(t, "phase")),
			Status: rapid.SampledFrom([]int{0, 101, 200, 404, 429, 500, 503}).Draw(t, "status"), Patience: Patience,
			Waited: time.Duration(rapid.IntRange(0, 2).Draw(t, "waited")) * Patience, Moved: flag("moved"), Stream: flag("stream"),
			Aside: flag("aside"), Early: flag("early"), FirstByte: flag("first byte"),
		}
	})
	for seed := range 5000 {
		e := draw.Example(seed)
		decided[e.rule()] = true
	}
	for i, r := range Rules {
		if !decided[i] {
			t.Errorf("no request is decided by %q", r.Name)
		}
	}
}

// Requests are counted by their verdicts, also by class, and windows can be merged.
func TestFinish(t *testing.T) {
	tally, whole := New("a"), New("a")
	for _, v := range []Verdict{Response, Failure, Shed, Limited, Demand, Nothing} {
		tally.Finish(v, "a", 10*time.Millisecond)
	}
	whole.Merge(tally)
	for _, x := range []*Tally{tally, whole} {
		o := x.Observation(time.Unix(1, 0), time.Second, 0)
		if x.Requests != 5 || x.Errors != 1 || x.Shed != 2 || *o.ErrorRate != 0.2 || *o.ShedRate != 0.4 || *o.LimitedRate != 0.2 ||
			o.LatencyMS.N != 1 || o.LatencyByClassMS["a"].N != 1 || x.Class("a").Requests != 5 {
			t.Errorf("%+v, %+v", x, o)
		}
	}
	if o := New().Observation(time.Unix(1, 0), time.Second, 0); o.ShedRate != nil {
		t.Errorf("without requests: %v", *o.ShedRate)
	}
}

func TestIsStream(t *testing.T) {
	for text, want := range map[string]bool{
		"text/event-stream": true, "Text/Event-Stream; charset=utf-8": true, "text/event-streams": false, "text/html": false, "": false,
		"multipart/x-mixed-replace;boundary=x": true, "application/x-ndjson": true, "application/json": false,
	} {
		if IsStream(text) != want {
			t.Errorf("%q: want %t", text, want)
		}
	}
}
