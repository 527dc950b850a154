package setup

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/internal/golden"
)

func found() *Facts {
	return &Facts{Service: "app", Socket: "/run/haproxy/quell.sock", Backend: "app", Level: "operator", LatencyMS: 13.2, Here: "10.0.0.10",
		From: "quell init /run/haproxy/quell.sock", Instances: []Instance{
			{ID: "a", Address: "10.0.0.11:80", Weight: 10, ConnectMS: 0.31, BitsPerS: 941e6},
			{ID: "b b", Address: "10.0.0.11:81", Weight: 5, Problem: "not reached from here:\nconnection refused"},
		}}
}

func TestConfig(t *testing.T) {
	f := found()
	lines := strings.Join(Install(f, "my file.yaml"), "\n")
	golden.Compare(t, filepath.Join("testdata", "haproxy.golden"), []byte(Config(f)+"\n"+lines+"\n"))
	local := &Facts{Service: "service", Health: "/healthz", Here: "127.0.0.1", From: "quell init 127.0.0.1:81",
		Instances: []Instance{{ID: "service-1", Address: "127.0.0.1:81"}, {ID: "service-2", Address: "127.0.0.1:82"}}}
	lines = strings.Join(Install(local, "quell.yaml"), "\n")
	golden.Compare(t, filepath.Join("testdata", "builtin.golden"), []byte(Config(local)+"\n"+lines+"\n"))
}

func TestConfigOfThePackages(t *testing.T) {
	f := found()
	f.Act, f.Data = true, "/var/lib/quell"
	text := Config(f)
	for _, want := range []string{"\nmode: act ", "\ndata: /var/lib/quell\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestThreshold(t *testing.T) {
	for ms, want := range map[float64]string{0: "100ms", -1: "100ms", 13.2: "40ms", 0.04: "0.12ms", 333: "1000ms"} {
		if got := threshold(ms); got != want {
			t.Errorf("threshold(%g) = %s, want %s", ms, got, want)
		}
	}
}
