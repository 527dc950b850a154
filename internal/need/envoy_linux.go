package need

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// RunEnvoy runs an Envoy with a configuration until the test ends. What it says is told if the test failed.
func RunEnvoy(t testing.TB, program, config string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd := exec.Command(program, "-c", path, "--concurrency", "1", "--disable-hot-restart", "-l", "warning")
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &said, &said, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Envoy said: %s", said.String())
		}
	})
}
