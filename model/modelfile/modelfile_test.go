package modelfile

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
)

func TestSaveAndLoad(t *testing.T) {
	m, err := Load("../../examples/golden/models.json")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "models.json")
	for range 2 { // the second time replaces the first
		if err := Save(m, path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if was, is := textOf(t, m), textOf(t, got); was != is {
		t.Errorf("got %s, want %s", is, was)
	}
	m.Prima().Isolation[quell.Network][0].ProbeMS = math.NaN()
	var invalid *quell.InvalidError
	if err := Save(m, path); !errors.As(err, &invalid) {
		t.Errorf("models with NaN were saved: %v", err)
	}
	if _, err := Load(path); err != nil {
		t.Errorf("a failed save harmed the file: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("files left behind: %v", left)
	}
}

func textOf(t *testing.T, m *model.Models) string {
	t.Helper()
	var b strings.Builder
	if err := m.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestErrorsNameTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.json")
	if err := os.WriteFile(path, []byte("{\n\"format\":\"other\"}"), 0o600); err != nil {
		t.Fatal(err)
	}
	var user *quell.UserError
	if _, err := Load(path); !errors.As(err, &user) || !strings.HasPrefix(err.Error(), path+":2: format: ") {
		t.Errorf("got %v", err)
	}
	if _, err := LoadTraining(path); !errors.As(err, &user) || !strings.HasPrefix(err.Error(), path+":1: not JSON: ") {
		t.Errorf("got %v", err)
	}
	if _, err := Load(path + "x"); !errors.As(err, &user) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := LoadTraining(path + "x"); !errors.As(err, &user) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
