package experiment

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

// TestMix plays a short mix on a real HAProxy. It asserts only what holds on a busy machine, too: HAProxy shows each act, the journal names
// it, and nobody is stopped who was taken out, or took itself out.
func TestMix(t *testing.T) {
	need.Program(t, "haproxy")
	need.Program(t, "curl")
	dir, err := os.MkdirTemp("", "qm") // the length of a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	log, err := os.Create(filepath.Join(dir, "quell.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	m := Mix{Length: 24 * time.Second, Round: 22 * time.Second, Sampling: time.Second, Rate: 40, Log: slog.New(slog.NewTextHandler(log, nil))}
	r, err := m.Play(t.Context(), dir)
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("%v\n%s", err, said)
	}
	if acts := len(r.Happened()); r.Named < acts || acts < len(mixActs)-1 {
		t.Errorf("the journal names %d of %d acts: %+v, %q", r.Named, acts, r.Acts, r.Events)
	}
	for _, e := range r.Ends {
		if e.Held != "" {
			t.Errorf("%s was stopped during: %s", e.Instance, e.Held)
		}
	}
	for _, kind := range []string{"ordinary 200", "sticky 200", "cancel cancelled", "limited 429"} {
		if r.Clients[kind] == 0 {
			t.Errorf("no client saw %q: %v", kind, r.Clients)
		}
	}
}
