package config

import (
	"strings"
	"testing"
)

// Agents on other machines with this file would answer nobody's probes if probe.listen is left out. They may have files of their own, so
// it is noted, and not refused.
func TestNoteOfAProbeServerThatOthersCannotReach(t *testing.T) {
	const there, here = `probe: "10.0.0.11:9466"`, `probe: "127.0.0.1:9466"`
	for name, c := range map[string]struct {
		probe, more string
		want        bool
	}{
		"left out":              {there, "probe: {capacity: 1Gbps}\n", true},
		"every address":         {there, "probe: {capacity: 1Gbps, listen: '0.0.0.0:9466', token_file: token}\n", false},
		"an agent beside it":    {here, "probe: {capacity: 1Gbps}\n", false},
		"nothing is probed":     {there, "policy: {name: static}\n", false},
		"a name may be of here": {`probe: "h1:9466"`, "probe: {capacity: 1Gbps}\n", false},
	} {
		f, err := drivers.Parse("quell.yaml", []byte(strings.Replace(ownFile("shop", c.more), `probe: "h1:9466"`, c.probe, 1)))
		if err != nil {
			t.Fatal(err)
		}
		const note = "probe.listen is left out, so that an agent with this file answers probes of its own machine only (127.0.0.1:9466), and " +
			"the agent of m1 is at 10.0.0.11:9466: "
		if got := strings.Contains(strings.Join(f.Notes(), "\n"), note); got != c.want {
			t.Errorf("%s: %q", name, f.Notes())
		}
	}
}
