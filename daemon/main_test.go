package daemon_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/quellhq/quell/scaler/aws/standin"
	"github.com/quellhq/quell/scaler/kubernetes/controlplane"
)

// quellProgram is the binary under test. The tests start real processes.
var quellProgram string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role == nodeRole {
		os.Exit(serveNode(os.Args[1]))
	} else if role != "" {
		os.Exit(playRole(role, os.Args[1:]))
	}
	os.Exit(withProgram(m))
}

func withProgram(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quell-daemon-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	quellProgram = filepath.Join(dir, "quell")
	build := exec.Command("go", "build", "-o", quellProgram, "github.com/quellhq/quell/cmd/quell")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building quell: %v\n%s", err, out)
		return 1
	}
	defer controlplane.Stop()
	defer standin.Stop()
	return m.Run()
}
