package kernel

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

// The object store serves only users who sign their requests. `make test` does not install it, so this test does not fail without it.
func TestObjectStore(t *testing.T) {
	need.Root(t)
	if _, err := findStore(); err != nil {
		t.Skip(err)
	}
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Network: 100e6}}})
	s := &ObjectStore{Place: place(t, l, "h1", Instance), Dir: filepath.Join(l.options.Dir, "store"), Objects: map[string]int64{"one": 1000}}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	response, err := client(place(t, l, "", Client), false).Get("http://" + s.Place.Address().String() + "/" + StoreBucket + "/one")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("without a signature: %s", response.Status)
	}
	if err := (&ObjectStore{Place: s.Place, Dir: t.TempDir(), Objects: map[string]int64{"../x": 1}}).Start(ctx); err == nil {
		t.Error("an object outside of the store's folder is accepted")
	}
}
