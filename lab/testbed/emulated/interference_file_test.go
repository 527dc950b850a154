package emulated

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

func TestInterferenceFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h1.json")
	write := func(use map[quell.Resource]float64) {
		if err := WriteInterference(path, use); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	use, calls := -1.0, 0
	f := &interferenceFile{
		path: path, log: slog.New(slog.NewTextHandler(&log, nil)),
		set: func(network float64) error { use, calls = network, calls+1; return nil },
	}
	polled := func(what string, want float64, wantCalls int) {
		t.Helper()
		calls = 0
		f.note(f.poll())
		f.note(f.poll())
		if use != want || calls != wantCalls {
			t.Errorf("%s: use %v, set %d times; want %v and %d", what, use, calls, want, wantCalls)
		}
	}
	polled("no file yet", -1, 0)
	write(map[quell.Resource]float64{quell.Network: 0.4})
	polled("written", 0.4, 1)
	polled("untouched", 0.4, 0)
	write(map[quell.Resource]float64{quell.Network: 0.5})
	polled("rewritten with the same length", 0.5, 1)
	os.WriteFile(path, []byte(`{"network":"much"}`), 0o600)
	polled("broken", 0.5, 0)
	if n := strings.Count(log.String(), "stay as they are"); n != 1 {
		t.Errorf("a broken file was reported %d times", n)
	}
	write(map[quell.Resource]float64{quell.CPU: 0.2})
	polled("another resource", 0, 1)
	if !strings.Contains(log.String(), "network only") {
		t.Error("nothing says that the processor's neighbours are not emulated")
	}
	write(map[quell.Resource]float64{quell.Network: 0.3})
	polled("again", 0.3, 1)
	os.Remove(path)
	polled("removed", 0, 1)
	os.WriteFile(path, bytes.Repeat([]byte(" "), interferenceMax+1), 0o600)
	polled("without end", 0, 0)
}

func TestWriteInterferenceLeavesNothingHalfDone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "h1.json")
	if err := WriteInterference(path, map[quell.Resource]float64{quell.Network: 0.4}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []map[quell.Resource]float64{
		{quell.Network: math.NaN()}, {quell.Network: math.Inf(1)}, {quell.Network: -0.1}, {"gpu": 1},
	} {
		if WriteInterference(path, bad) == nil {
			t.Errorf("%v was written", bad)
		}
	}
	if content, _ := os.ReadFile(path); string(content) != `{"network":0.4}` {
		t.Errorf("the file holds %s", content)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
	if err := WriteInterference(filepath.Join(dir, "missing", "h1.json"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
}

func FuzzParseInterference(f *testing.F) {
	for _, seed := range []string{`{}`, `{"network":0.4}`, `{"network":-1}`, `{"gpu":1}`, `{"network":1} x`, `null`, `[`,
		`{"network":1e999}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		use, err := parseInterference(content)
		if err != nil {
			return
		}
		for r, share := range use {
			if !(share >= 0) || math.IsInf(share, 0) {
				t.Fatalf("%s: %v was accepted", r, share)
			}
		}
		again, _ := json.Marshal(use)
		if back, err := parseInterference(again); err != nil || !maps.Equal(use, back) {
			t.Fatalf("%v came back as %v: %v", use, back, err)
		}
	})
}
