package bundle

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
)

const harmlessConfig = `service: video
slo: {metric: mean, threshold: 75ms, budget: {of: requests}}
policy: {name: dial, authority: step}
agent: {interface: requests0}
bus: {token: correct-horse-battery}
`

// A status and a journal stay valid JSON, and known words stay in them; secrets in their texts are removed.
func TestJSONStaysValid(t *testing.T) {
	var s Scrubber
	config := string(s.Config([]byte(harmlessConfig)))
	for _, want := range []string{"of: requests", "authority: step", "interface: requests0"} {
		if !strings.Contains(config, want) {
			t.Errorf("the configuration lacks %q:\n%s", want, config)
		}
	}
	status := map[string]any{"authority": "step", "requests": 12,
		"status": controller.Status{Service: "video", Bus: "token: \"hunter2\", then"}}
	for _, p := range planted {
		s.Config([]byte(p.config))
		status[p.kind] = "said: " + p.text
	}
	indented, err := json.MarshalIndent(status, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	plan := quell.Plan{Policy: "dial", Reasons: []quell.Reason{{Code: "step", Text: `authority: "step", session "4711"`}}}
	entry, err := json.Marshal(bus.Entry{Kind: bus.PlanEntry, At: time.Unix(1, 0), Plan: &plan})
	if err != nil {
		t.Fatal(err)
	}
	lines := s.JSONLines([]byte(string(entry) + "\n" + string(entry) + "\nno JSON correct-horse-battery\n"))
	out := string(s.JSON(indented)) + "\n" + string(lines)
	for line := range strings.Lines(string(lines)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	if !json.Valid(s.JSON(indented)) {
		t.Errorf("not JSON: %s", out)
	}
	for _, want := range []string{`"authority": "step"`, `"requests": 12`, `"text":"authority:`, `"policy":"dial"`} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %s:\n%s", want, out)
		}
	}
	for _, p := range planted {
		if strings.Contains(out, p.secret) {
			t.Errorf("%s: %s is in %s", p.kind, p.secret, out)
		}
	}
}

// What belongs to a secret key is removed whatever it is, and so are numbers that the configuration hides.
func TestSecretsInJSON(t *testing.T) {
	var s Scrubber
	s.Hide("123456789012", "wort\nhidden-key1")
	for in, want := range map[string]string{
		`{"password":"a\"b","n":1}`:          `{"password":"(removed)","n":1}`,
		`{"api_key": 77, "n": [1,2.5e+3]}`:   `{"api_key": "(removed)", "n": [1,2.5e+3]}`,
		`{"tokens":["ab","cd"],"x":{"y":1}}`: `{"tokens":["(removed)","(removed)"],"x":{"y":1}}`,
		`{"n":123456789012}`:                 `{"n":"(removed)"}`,
		`{"wort":1,"hidden-key1":2}`:         `{"wort":1,"(removed)":2}`,
		`{"a\":": "x:", "b" : ":"}`:          `{"a\":": "x:", "b" : ":"}`,
		`null`:                               `null`,
	} {
		if got := string(s.JSON([]byte(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func FuzzJSON(f *testing.F) {
	f.Add(`{"authority": "step", "token": "x"}`, "step")
	f.Fuzz(func(t *testing.T, text, secret string) {
		var s Scrubber
		s.Hide(secret)
		if out := s.JSON([]byte(text)); !json.Valid(out) {
			t.Errorf("%q becomes %q", text, out)
		}
	})
}
