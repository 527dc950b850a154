package packaging

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A unit that systemd restarts is restarted for as long as it takes: the address at which it listens may come minutes after the boot, and
// systemd by itself gives up after five failures within ten seconds.
func TestUnitsAreRestartedWithoutEnd(t *testing.T) {
	units, err := filepath.Glob("systemd/*.service")
	if err != nil || len(units) < 4 {
		t.Fatalf("%v, %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\n[Unit]\n")
		section, service, _ := strings.Cut(rest, "\n[Service]\n")
		if strings.Contains(service, "\nRestart=") && !strings.Contains(section+"\n", "\nStartLimitIntervalSec=0\n") {
			t.Errorf("%s has Restart=, and no StartLimitIntervalSec=0 in [Unit]", unit)
		}
	}
}
