package config

import (
	"strings"
	"testing"
	"time"
)

// TestContactDespiteMistakes checks that a command such as pause finds its controller whatever mistakes other sections of the file
// have.
func TestContactDespiteMistakes(t *testing.T) {
	const head = "service: video\nbus: {url: 'nats://h:1', token: x}\n"
	for name, c := range map[string]struct {
		text     string
		mistakes string // one that must be reported
	}{
		"no mistake":       {head + "slo: {metric: mean, threshold: 75ms}\n", ""},
		"slo is missing":   {head, "slo is missing"},
		"a misspelt key":   {head + "guard: {flor: 1}\n", `unknown key "flor"`},
		"keys disagree":    {head + "slo: {metric: mean, threshold: 75ms}\ngroup: {min: 5, max: 3}\n", "cannot both hold"},
		"ports clash":      {"service: video\nbus: {listen: '127.0.0.1:9464'}\nslo: {metric: mean, threshold: 75ms}\n", "cannot both listen"},
		"no YAML, after":   {head + "policy: {name: [\nmode: act\n", "not valid YAML"},
		"no YAML, before":  {"slo: {metric: mean\n" + head, "not valid YAML"},
		"a tab":            {head + "guard:\n\tfloor: 5%\n", "not valid YAML"},
		"a block of a bus": {"slo: [\nbus:\n  # where it is\n  url: nats://h:1\n\n  token: x\nservice: video\n", "not valid YAML"},
	} {
		f, mistakes, err := drivers.parsePart("/etc/quell/quell.yaml", []byte(c.text), contactPart)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if f.Service.Name != "video" || f.Data != "/etc/quell/quell-data" || !strings.Contains(mistakes.Error(), c.mistakes) ||
			(c.mistakes == "") != (len(mistakes) == 0) {
			t.Errorf("%s: service %q, data %q, mistakes %v", name, f.Service.Name, f.Data, mistakes)
		}
		if f.Bus.URL != "nats://h:1" && f.Bus.Listen != "127.0.0.1:9464" {
			t.Errorf("%s: bus %+v", name, f.Bus)
		}
	}
}

// TestHostDespiteMistakes checks that an emulated machine starts whatever mistakes the sections have that it does not read.
func TestHostDespiteMistakes(t *testing.T) {
	const head = "service: video\nsampling: 2s\nprobe: {token: secret-of-a-test}\nbus: {url: 'nats://h:1'}\n"
	for name, c := range map[string]struct{ text, refused string }{
		"no mistake":         {head + "slo: {metric: mean, threshold: 75ms}\n", ""},
		"a misspelt key":     {head + "guard: {flor: 1}\n", ""},
		"no YAML":            {head + "policy: {name: [\n", ""},
		"a mistake in probe": {"service: video\nprobe: {tokn: x}\nslo: {metric: mean, threshold: 75ms}\n", `unknown key "tokn"`},
		"a bad period":       {"service: video\nsampling: soon\nslo: {metric: mean, threshold: 75ms}\n", "sampling"},
	} {
		f, _, err := drivers.parsePart("quell.yaml", []byte(c.text), hostPart)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: got %v, want %q", name, err, c.refused)
			}
			continue
		}
		if err != nil || f.Service.Name != "video" || f.Service.Sampling != 2*time.Second || f.Probe.Token != "secret-of-a-test" {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

// TestContactRefused checks that a command is never sent to a controller that the file does not name clearly.
func TestContactRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no service":          {"slo: {metric: mean, threshold: 75ms}\n", "service is missing"},
		"a broken bus":        {"service: video\nbus: {url: 7}\n", "bus.url"},
		"a misspelt bus":      {"service: video\nbuss: {url: 'nats://h:1'}\n", `did you mean "bus"`},
		"two buses":           {"service: video\nbus: {url: 'nats://h:1'}\nbus: {url: 'nats://h:2'}\n", `duplicate key "bus"`},
		"a bus that ends not": {"service: video\nbus: {url: 'nats://h:1'\nmode: act\n", "not valid YAML"},
		"a list":              {"- service\n", "must be a map"},
	} {
		_, _, err := drivers.parsePart("quell.yaml", []byte(c.text), contactPart)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
