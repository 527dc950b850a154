package middleware

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const original = "# the toy's file\nworkers 10\nother 5\n"

// toy is a server of two parameters. Its check refuses 66 workers. Its reload copies the file to what is in force, and fails with 77
// workers.
type toy struct {
	t      *testing.T
	dir    string
	config string
	server Server
	log    strings.Builder
}

func newToy(t *testing.T) *toy {
	t.Helper()
	r := &toy{t: t, dir: t.TempDir()}
	folder := filepath.Join(r.dir, "conf")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	r.config = filepath.Join(folder, "toy.conf")
	r.write(original)
	r.server = Server{Kind: "toy", Settings: &Settings{
		server: &server{name: "toy", known: []string{"workers", "other"}, line: Apache.Defaults().server.line},
		File:   r.config,
		Parameters: []Parameter{
			{Name: "workers", Min: 1, Max: 100}, {Name: "other", Min: 0, Max: 9},
		},
		Check:  []string{"sh", "-c", `! grep "workers 66" "$0" >&2`, "{file}"},
		Reload: []string{"sh", "-c", `cat "$0" > "$1/force"; echo x >> "$1/reloads"; ! grep "workers 77" "$0" >&2`, r.config, r.dir},
	}}
	return r
}

func (r *toy) write(content string) {
	r.t.Helper()
	if err := os.WriteFile(r.config, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *toy) open() *Driver {
	r.t.Helper()
	d, err := Open(r.t.Context(), r.server, slog.New(slog.NewTextHandler(&r.log, nil)))
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

func (r *toy) close(d *Driver) {
	r.t.Helper()
	if err := d.Close(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *toy) set(d *Driver, name string, value float64) {
	r.t.Helper()
	if err := d.Set(r.t.Context(), name, value); err != nil {
		r.t.Fatal(err)
	}
}

func (r *toy) read(path string) string {
	r.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

func (r *toy) force() string { return r.read(filepath.Join(r.dir, "force")) }

func (r *toy) reloads() int {
	data, _ := os.ReadFile(filepath.Join(r.dir, "reloads"))
	return strings.Count(string(data), "x")
}

// has checks the file and the files beside it. A record is there exactly while the file is changed.
func (r *toy) has(content string, changed bool) {
	r.t.Helper()
	if changed {
		r.hasBeside(content, ".toy.conf.quell-original")
	} else {
		r.hasBeside(content)
	}
}

// hasBeside checks the file and the files beside it, which are the lock and these.
func (r *toy) hasBeside(content string, more ...string) {
	r.t.Helper()
	if got := r.read(r.config); got != content {
		r.t.Errorf("the file has %q, want %q", got, content)
	}
	entries, err := os.ReadDir(filepath.Dir(r.config))
	if err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := append(append([]string{".toy.conf.quell-lock"}, more...), "toy.conf")
	if !slices.Equal(names, want) {
		r.t.Errorf("the folder has %v, want %v", names, want)
	}
}

func (r *toy) inForce(d *Driver, want map[string]float64) {
	r.t.Helper()
	if got, err := d.InForce(r.t.Context()); err != nil || !maps.Equal(got, want) {
		r.t.Errorf("in force: %v, %v, want %v", got, err, want)
	}
}

func with(workers int) string {
	return strings.Replace(original, "workers 10", "workers "+strconv.Itoa(workers), 1)
}
