package daemon_test

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quellhq/quell/controller"
)

// The questions that operators ask are each answered by one command, on a screen of 25 lines and 100 columns. docs/guide.md lists them.
func TestOperatorsQuestions(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	models, err := filepath.Abs("../examples/golden/models.json")
	if err != nil {
		t.Fatal(err)
	}
	r.write(strings.Replace(hosts(r), "policy: {name: static}", "policy: {name: prima}\nmodels: "+models+"\nlearn: true", 1))
	r.start("controller")
	r.start("balancer")
	r.awaitServing("i1", "i2")
	flow(r)
	r.awaitStatus("capacities and response times", func(s controller.Status) bool {
		for _, row := range s.Instances {
			if row.CanTakeRate == nil || row.LatencyMS == nil || row.Share == nil {
				return false
			}
		}
		return len(s.Learned) > 0
	})
	for _, q := range []struct {
		asked, command string
		want           []string
	}{
		{"is it well?", "status", []string{"shop is well: mean is ", "objective mean <= 500ms"}},
		{"who is slow?", "status", []string{"INSTANCE  RATE", "CAN TAKE", "LATENCY", "i1 ", "i2 "}},
		{"why?", "explain i1", []string{"i1 of service shop", "response", "capacity", "weight"}},
		{"since when?", "explain i1", []string{"response     measured"}},
		{"what will it do?", "status", []string{"policy prima: ", "WOULD BE"}},
		{"what did it do?", "journal --brief", []string{"started the first instances: i1, i2"}},
		{"can I drain it?", "drain i1 --check", []string{"the other 1 can take "}},
		{"is it learning?", "status", []string{"learning: network: "}},
		{"what does it cost?", "status", []string{"cost ", " of instances"}},
		{"how do I stop it?", "pause", []string{"paused by ", "quell resume ends the pause, quell release puts the balancer back"}},
	} {
		out, status := r.quell(append(strings.Fields(q.command), "--config", r.config)...)
		no := strings.HasSuffix(q.command, "--check") && strings.Contains(out, "no: ") // whether it can depends on the machine
		if status != 0 && !no || !has(out, q.want...) {
			t.Errorf("%s quell %s: status %d\n%s\nwant %q", q.asked, q.command, status, out, q.want)
		}
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if len(lines) > 25 {
			t.Errorf("%s quell %s has %d lines:\n%s", q.asked, q.command, len(lines), out)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > 100 {
				t.Errorf("%s quell %s has a line of %d columns: %s", q.asked, q.command, n, line)
			}
		}
	}
	if out, _ := r.quell("status", "--config", r.config); !has(out, "changes nothing until quell resume, paused by ") {
		t.Errorf("after the pause:\n%s", out)
	}
}
