package daemon

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/policy/table"
)

// twoMachines are scaler and balancer of a listed fleet. They show nothing that only an earlier run can have left.
type twoMachines struct{}

func (twoMachines) Members(context.Context) ([]quell.Member, error) {
	return []quell.Member{{ID: "i1", Address: "127.0.0.1:1", State: quell.Ready}, {ID: "i2", Address: "127.0.0.1:2", State: quell.Ready}}, nil
}
func (twoMachines) Start(context.Context, int) ([]string, error)        { return nil, nil }
func (twoMachines) Stop(context.Context, []string) error                { return nil }
func (twoMachines) Apply(context.Context, []quell.Backend) error        { return nil }
func (twoMachines) State(context.Context) ([]quell.BackendState, error) { return nil, nil }

// withController starts a controller of such a fleet on a data folder, makes a decision, and calls do.
func withController(t *testing.T, data string, do func(c *controller.Controller)) (err error) {
	t.Helper()
	server, err := bus.StartServer(bus.ServerOptions{
		StoreDir: filepath.Join(data, "bus"), Keyring: &auth.Keyring{Dir: filepath.Join(data, "credentials")},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Shutdown()) }()
	conn, err := bus.Connect(bus.Options{Server: server})
	if err != nil {
		return err
	}
	defer conn.Close()
	state, err := conn.State("shop")
	if err != nil {
		return err
	}
	journal, err := conn.Journal("shop", bus.JournalOptions{})
	if err != nil {
		return err
	}
	service := quell.DefaultService()
	service.Name, service.Policy.Name = "shop", "static"
	service.SLO = quell.SLO{Metric: quell.Mean, Threshold: 100 * time.Millisecond}
	service.Group.Min, service.Group.Max = 2, 2
	c, err := controller.New(controller.Options{Service: service, Policies: table.All, Balancer: twoMachines{}, Scaler: twoMachines{},
		Journal: journal, Memory: state, Fixed: true, Listed: true, Marker: markIn(data), Reopen: conn.Reopen})
	if err != nil {
		return err
	}
	c.Step(t.Context())
	do(c)
	return nil
}

// command sends an operator's command.
func command(t *testing.T, c *controller.Controller, cmd bus.Command) {
	t.Helper()
	if reply := c.Command(t.Context(), cmd); reply.Error != "" {
		t.Fatal(reply.Error)
	}
}

// installed makes a data folder whose controller was told to pause and to use a fixed share, and a copy of the folder as it was before.
func installed(t *testing.T) (data, before string) {
	t.Helper()
	data, before = t.TempDir(), t.TempDir()
	err := withController(t, data, func(c *controller.Controller) {
		for range 20 {
			c.Step(t.Context())
		}
	})
	err = errors.Join(err, os.CopyFS(before, os.DirFS(data)), withController(t, data, func(c *controller.Controller) {
		share := .7
		command(t, c, bus.Command{Name: bus.Override, By: "ann", Instance: "i1", Weight: &share})
		command(t, c, bus.Command{Name: bus.Pause, By: "ann"})
		c.Step(t.Context())
	}))
	if err != nil {
		t.Fatal(err)
	}
	return data, before
}

// damages are what can happen to a file. Each gets the file and its older copy.
var damages = map[string]func(path, older string, size int64) error{
	"removed": func(path, _ string, _ int64) error { return os.Remove(path) },
	"halved":  func(path, _ string, size int64) error { return os.Truncate(path, size/2) },
	"noise": func(path, _ string, size int64) error {
		return os.WriteFile(path, bytes.Repeat([]byte{0x5a, 0, 0xff, 0x13}, int(size/4)), 0o600)
	},
	"older": func(path, older string, _ int64) error {
		data, err := os.ReadFile(older)
		if err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o600)
	},
}

// TestTwoFilesAreDamaged damages two files of the data folder at a time. The next controller either knows the operator's pause and
// fixed share, or it says that its memory is lost, or it refuses to start.
func TestTwoFilesAreDamaged(t *testing.T) {
	t.Parallel()
	data, before := installed(t)
	files := filesBelow(t, data)
	ways := slices.Sorted(maps.Keys(damages))
	for i, one := range files {
		for j, two := range files[i+1:] {
			for k, first := range ways {
				for l, second := range ways {
					if k == l && k == (i+j)%len(ways) || ofMemory(one) && ofMemory(two) {
						wantKnownOrLost(t, data, before, map[string]string{one: first, two: second})
					}
				}
			}
		}
	}
}

// ofMemory returns whether a file holds the controller's memory or a mark. Pairs of these are damaged in every combination of ways, other
// pairs in one.
func ofMemory(file string) bool {
	return strings.Contains(file, "KV_quell_state") || strings.HasPrefix(file, "installation")
}

func wantKnownOrLost(t *testing.T, intact, before string, how map[string]string) {
	t.Helper()
	data, err := os.MkdirTemp(t.TempDir(), "")
	if err == nil {
		err = os.CopyFS(data, os.DirFS(intact))
	}
	if err != nil {
		t.Fatal(err)
	}
	for file, way := range how {
		damage(t, data, before, file, way)
	}
	err = withController(t, data, func(c *controller.Controller) {
		s := c.Status()
		if knows := s.Paused && s.Overrides["i1"] == .7; s.Leading && s.Lost == "" && !knows {
			t.Errorf("%v: the controller acts, and knows: paused %v, fixed shares %v", how, s.Paused, s.Overrides)
		}
	})
	if err != nil && !strings.Contains(err.Error(), "account.nk holds no key") {
		t.Errorf("%v: %v", how, err)
	}
}

// damage damages a file of a data folder. Nothing happens to a file that is gone, or has no older copy.
func damage(t *testing.T, data, before, file, how string) {
	t.Helper()
	path := filepath.Join(data, file)
	info, err := os.Stat(path)
	if err == nil {
		err = damages[how](path, filepath.Join(before, file), info.Size())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func filesBelow(t *testing.T, folder string) []string {
	t.Helper()
	var files []string
	if err := fs.WalkDir(os.DirFS(folder), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files
}

// TestAMarkIsWrittenAgain checks that a controller replaces a copy of its mark that is missing, damaged or old.
func TestAMarkIsWrittenAgain(t *testing.T) {
	t.Parallel()
	intact, before := installed(t)
	want, err := markIn(intact).Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range slices.Sorted(maps.Keys(damages)) {
		for _, file := range markIn("").copies {
			damage(t, intact, before, file, way)
			if err := withController(t, intact, func(*controller.Controller) {}); err != nil {
				t.Fatal(err)
			}
			for _, path := range markIn(intact).copies {
				if got, err := readMark(path); err != nil || got != want {
					t.Errorf("%s %s: %s is %+v, %v; want %+v", file, way, path, got, err, want)
				}
			}
		}
	}
}
