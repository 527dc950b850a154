package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/internal/golden"
)

// checkBeside runs Check on a file in a folder with some more files.
func checkBeside(t *testing.T, name string, data []byte) error {
	t.Helper()
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	defer t.Chdir(folder) // golden files are written there
	mode := os.FileMode(0o600)
	if strings.Contains(name, "in-an-open-file") {
		mode = 0o644
	}
	for name, f := range map[string]struct {
		text string
		mode os.FileMode
	}{
		name:          {string(data), mode},
		"good.token":  {strings.Repeat("0123456789abcdef", 2) + "\n", 0o600},
		"open.token":  {strings.Repeat("0123456789abcdef", 2) + "\n", 0o644},
		"short.token": {"secret\n", 0o600},
		"empty.token": {"", 0o600},
		"lines.token": {"0123456789abcdef\n0123456789abcdef\n", 0o600},
	} {
		if err := os.WriteFile(name, []byte(f.text), f.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, f.mode); err != nil { // independent of the umask
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("folder", 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = drivers.Check(name)
	return err
}

// TestCheckedFiles checks that files without mistakes pass Check.
func TestCheckedFiles(t *testing.T) {
	const fleet = `scaler: {instances: [{id: a, address: "h:1", probe: "h:2"}]}` + "\n"
	for name, text := range map[string]string{
		"secrets of one's own":    fleet + "bus: {token_file: good.token}\nprobe: {capacity: 1Gbps, token: 0123456789abcdef}\n",
		"a policy without probes": "policy: {name: lr}\nscaler: {instances: [{id: a, address: 'h:1'}]}\n",
		"nothing to probe":        "policy: {name: lr}\nprobe: {from: controller}\n" + fleet,
		"the group is the fleet":  fleet + "probe: {size: 50KB}\ngroup: {min: 1, max: 1}\nagent: {instance: a, capacity: {network: 1Gbps}}\n",
		"instances that come":     "scaler: {kind: command, start: [up], stop: [down], list: [ls]}\nprobe: {capacity: 1Gbps}\n",
	} {
		if err := checkBeside(t, "quell.yaml", []byte(least+text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBadFiles has one file for each rule, which breaks it, and compares the message with the file next to it.
func TestBadFiles(t *testing.T) {
	golden.BadFiles(t, "testdata/bad/*.yaml", func(t *testing.T, file string) error {
		name, data := filepath.Base(file), read(t, file)
		if strings.HasPrefix(name, "check-") {
			return checkBeside(t, name, data)
		}
		_, err := drivers.Parse(name, data)
		return err
	}, "prima")
}
