package daemon

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/middleware"
)

// A parameter that cannot be changed is left out. The server's other parameters can be changed, and the agent goes on.
func TestABadParameterIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "apache.conf")
	if err := os.WriteFile(file, []byte("KeepAliveTimeout 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := func(names ...string) middleware.Server {
		s := middleware.Apache.Defaults()
		s.File, s.PID = file, filepath.Join(dir, "pid")
		for _, name := range names {
			s.Parameters = append(s.Parameters, middleware.Parameter{Name: name, Max: 100})
		}
		return middleware.Server{Kind: "apache", Settings: s}
	}
	var log bytes.Buffer
	started, err := Drivers().Parse("agent.yaml", []byte("agent: {policy: {name: acs}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := &reporter{log: slog.New(slog.NewTextHandler(&log, nil)), started: started}
	r.started.Agent.Servers = []middleware.Server{server("MaxRequestWorkers", "KeepAliveTimeout")}
	restore, err := r.openServers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"MaxRequestWorkers": "does not set MaxRequestWorkers", "KeepAliveTimeout": "apache is not running",
	} {
		if err := r.setters["apache"].Set(t.Context(), name, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := restore(); err != nil || !strings.Contains(log.String(), "agent.middleware[0]: ") {
		t.Errorf("%v, and the log has %s", err, &log)
	}

	r.started.Agent.Servers = []middleware.Server{server("MaxRequestWorkers")}
	if _, err = r.openServers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.setters["apache"].Set(t.Context(), "MaxRequestWorkers", 1); err == nil || !strings.Contains(err.Error(), "does not set") {
		t.Errorf("a server of which nothing is left: %v", err)
	}
	if values, err := r.setters["apache"].InForce(t.Context()); err != nil || len(values) > 0 {
		t.Errorf("in force: %v, %v", values, err)
	}
}
