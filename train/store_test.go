package train

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
)

func madeUp(seed uint64) model.TrainingRow {
	interference, ms := 0.0, 12.0
	return model.TrainingRow{
		Resource: quell.Network, Level: 0.1, InterferingLevel: &interference, Utilization: 0.1, Seed: seed,
		LatencyMS: quell.Latency{Mean: &ms, N: 10}, ProbeMS: model.ProbeRun{Mean: 2, N: 3},
	}
}

// stored opens a store, saves a row for each of the given seeds and closes the store.
func stored(t *testing.T, path string, settings Settings, seeds ...uint64) {
	t.Helper()
	s, err := OpenStore(path, settings, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, seed := range seeds {
		if err := s.Save(madeUp(seed)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestStoreKeepsWhatWasWhole checks that after a crash anywhere in the last line the rows before it are kept, and the
// next one is written normally.
func TestStoreKeepsWhatWasWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	settings := Settings{"train.seed": "1"}
	stored(t, path, settings, 1, 2)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	second := strings.Index(string(whole), "\n") + 1
	for cut := range len(whole) + 1 {
		want := 0
		switch {
		case cut >= len(whole)-1: // only the line break is missing
			want = 2
		case cut >= second-1:
			want = 1
		}
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := OpenStore(path, settings, false)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if len(s.Rows()) != want {
			t.Fatalf("cut at %d of %d: %d rows, want %d", cut, len(whole), len(s.Rows()), want)
		}
		if err := errors.Join(s.Save(madeUp(3)), s.Close()); err != nil {
			t.Fatal(err)
		}
		if rows, err := modelfile.LoadTraining(path); err != nil || len(rows) != want+1 || rows[want].Seed != 3 {
			t.Fatalf("cut at %d: then %d rows, %v", cut, len(rows), err)
		}
	}
}

func TestStoreRefusesWhatDoesNotBelong(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rows.jsonl")
	stored(t, path, Settings{"service": "web", "train.seed": "1", "train.run": "9s"}, 1)
	before, _ := os.ReadFile(path)
	ruined := filepath.Join(dir, "ruined.jsonl")
	stored(t, ruined, Settings{"train.seed": "1"}, 1)
	if err := os.WriteFile(ruined, append([]byte("{\n"), before...), 0o644); err != nil {
		t.Fatal(err)
	}
	unknown := filepath.Join(dir, "unknown.jsonl")
	if err := os.WriteFile(unknown, before, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path     string
		settings Settings
		want     string
	}{
		{path, Settings{"service": "files", "train.seed": "2", "train.hosts": "4", "train.run": "9s"},
			"service was web and is files, train.hosts was not given and is 4, train.seed was 1 and is 2"},
		{ruined, Settings{"train.seed": "1"}, "ruined.jsonl:1"},
		{unknown, Settings{}, "no " + unknown + ".settings says how"},
		{filepath.Join(dir, "nowhere", "rows.jsonl"), Settings{}, "no such file"},
		{os.DevNull, Settings{}, "is not a regular file"},
		{dir, Settings{}, "is not a regular file"},
	} {
		_, err := OpenStore(tc.path, tc.settings, false)
		var user *quell.UserError
		if !errors.As(err, &user) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want a mistake with %q", filepath.Base(tc.path), err, tc.want)
		}
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("a refused store was changed")
	}
}

func TestStoreSetsRowsAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	for _, seed := range []string{"1", "2", "3"} {
		s, err := OpenStore(path, Settings{"train.seed": seed}, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Save(madeUp(1)), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for name, seed := range map[string]string{path + ".1": "1", path + ".2": "2", path: "3"} {
		rows, err := modelfile.LoadTraining(name)
		if err != nil || len(rows) != 1 {
			t.Errorf("%s: %d rows, %v", name, len(rows), err)
		}
		if data, err := os.ReadFile(name + ".settings"); err != nil || !strings.Contains(string(data), `"`+seed+`"`) {
			t.Errorf("%s.settings: %s, %v", name, data, err)
		}
	}
}

func TestStoreHasOneWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	s, err := OpenStore(path, Settings{}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, fresh := range []bool{false, true} {
		if _, err := OpenStore(path, Settings{}, fresh); err == nil || !strings.Contains(err.Error(), "being written by another training") {
			t.Errorf("fresh %v: got %v", fresh, err)
		}
	}
}

// TestStoreOnAFullDisk checks that an incomplete row is removed, and that the message says what to do.
func TestStoreOnAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer full.Close()
	s := &Store{path: "rows.jsonl", file: full}
	if err := s.Save(madeUp(1)); err == nil || !strings.Contains(err.Error(),
		"rows.jsonl is full; free some space and give the same command again") {
		t.Errorf("got %v", err)
	}
	if s.size != 0 {
		t.Errorf("a row that was not written counts %d bytes", s.size)
	}
}
