//go:build !linux

package daemon_test

import (
	"testing"

	"github.com/quellhq/quell/internal/need"
)

// roleVariable makes the test binary run a part of a test; here there are none.
const roleVariable = "DAEMON_TEST_ROLE"

func playRole(string, []string) int { return 100 }

func TestAFullDisk(t *testing.T) {
	need.Skip(t, "needs Linux: a small disk is mounted for one process")
}
