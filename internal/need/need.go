// Package need declares what a test requires. If what it requires is missing, the test is skipped; with
// QUELL_REQUIRE=all in the environment, which CI sets, it fails instead.
package need

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// debian returns the Debian package of a program.
func debian(program string) string {
	packages := map[string]string{
		"ip": "iproute2", "tc": "iproute2", "ss": "iproute2", "rsvg-convert": "librsvg2-bin", "ab": "apache2-utils", "nginx": "nginx-light",
		"qemu-system-x86_64": "qemu-system-x86", "apache2": "apache2-bin", "promtool": "prometheus", "dnsmasq": "dnsmasq-base",
		"etcd": "etcd-server",
	}
	if name, other := packages[program]; other {
		return name
	}
	return program
}

// Root needs the privileges of root.
func Root(t testing.TB) {
	t.Helper()
	if id := os.Geteuid(); id != 0 {
		Skip(t, fmt.Sprintf("needs root, runs as user %d: run it with sudo", id))
	}
}

// Program needs a program in the search path, and returns its path.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	why := fmt.Sprintf("needs the program %s", name)
	if pkg := debian(name); pkg != "" {
		why += ": on Debian, apt-get install " + pkg
	}
	Skip(t, why)
	return ""
}

// Skip ends a test that lacks something; why says what is missing.
func Skip(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("QUELL_REQUIRE") == "all" {
		t.Fatalf("%s (QUELL_REQUIRE=all makes this a failure)", why)
	}
	t.Skip(why)
}
