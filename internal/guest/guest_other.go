//go:build !linux

// Package guest runs tests in a small virtual machine. On this system there is none.
package guest

import (
	"testing"

	"github.com/quellhq/quell/internal/need"
)

// Inside returns false.
func Inside() bool { return false }

// Main runs a package's tests, and returns the exit status.
func Main(m *testing.M) int { return m.Run() }

// Run skips the test.
func Run(t *testing.T, _ string, _ ...string) {
	t.Helper()
	need.Skip(t, "needs Linux")
}
