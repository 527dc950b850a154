package daemon_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/lifeline"
)

// An agent ends, as if it had been asked to, when the process that holds its lifeline ends.
func TestAgentEndsWithItsLifeline(t *testing.T) {
	config := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(config, []byte("data: data\nagent: {policy: {name: waits}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	agent := exec.Command(quellProgram, "agent", "--config", config)
	lifeline.Give(agent, pipe)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = agent.Process.Kill() }) // Wait then returns an error
	defer late.Stop()
	if err := end.Close(); err != nil {
		t.Fatal(err)
	}
	if err := agent.Wait(); err != nil {
		t.Error(err)
	}
}
