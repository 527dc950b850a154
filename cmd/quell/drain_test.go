package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// fakeController serves a bus and answers a service's commands: one status after the other to those who ask for it, and that all is done to
// others. It returns the path of the configuration, and how many statuses were asked for.
func fakeController(t *testing.T, statuses []controller.Status) (config string, asked *atomic.Int64) {
	t.Helper()
	dir, listen := t.TempDir(), need.FreeAddress(t)
	config = filepath.Join(dir, "web.yaml")
	text := fmt.Sprintf("service: web\nslo: {metric: mean, threshold: 100ms}\ndata: data\nbus: {listen: %q}\n"+
		"scaler: {kind: fixed, instances: [{id: i1, address: \"127.0.0.1:1\"}, {id: i2, address: \"127.0.0.1:2\"}]}\n", listen)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	server, err := bus.StartServer(bus.ServerOptions{Listen: listen, StoreDir: filepath.Join(data, "bus"),
		Keyring: &auth.Keyring{Dir: filepath.Join(data, "credentials")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Shutdown() })
	conn, err := bus.Connect(bus.Options{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	asked = new(atomic.Int64)
	unserve, err := conn.Serve("web", func(_ context.Context, cmd bus.Command) bus.Reply {
		if cmd.Name != bus.Status {
			return bus.Reply{Body: json.RawMessage(`{"done":"done"}`)}
		}
		s := statuses[min(int(asked.Add(1)), len(statuses))-1]
		s.Service, s.Mode = "web", quell.Act
		body, err := json.Marshal(s)
		if err != nil {
			return bus.Reply{Error: err.Error()}
		}
		return bus.Reply{Body: body}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unserve)
	return config, asked
}

// A drain waits until a leader knows that no request is open: a controller that has just started, or that stands by, does not know it, nor
// does a decision that is older than the instance.
func TestADrainWaitsForWhoKnows(t *testing.T) {
	before := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	after := before.Add(10 * time.Second)
	with := func(open int64, held *quell.Held) []controller.InstanceStatus {
		return []controller.InstanceStatus{{ID: "i1", State: quell.Ready},
			{ID: "i2", State: quell.Ready, Held: held, Open: &open, Empty: held != nil && open == 0}}
	}
	others, held := []controller.InstanceStatus{{ID: "i1", State: quell.Ready}}, &quell.Held{By: "ann", Since: before}
	for name, c := range map[string]struct {
		statuses []controller.Status
		waits    string
	}{
		"the controller restarts": {[]controller.Status{
			{Leading: true, At: before, Instances: with(2, held)},
			{}, {Leading: true},
			{At: after, Instances: with(0, nil), Standby: true},
			{Leading: true, At: after, Instances: with(1, held)},
			{Leading: true, At: after, Instances: with(0, held)},
		}, "waiting for 1 open request(s) of i2"},
		"it is newer than the last decision": {[]controller.Status{
			{Leading: true, At: before, Instances: others},
			{Leading: true, At: before, Instances: others},
			{Leading: true, At: after, Instances: with(3, held)},
			{Leading: true, At: after, Instances: with(0, held)},
		}, "waiting for 3 open request(s) of i2"},
		"it has ended": {[]controller.Status{
			{Leading: true, At: before, Instances: others},
			{Leading: true, At: after, Instances: others},
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			config, asked := fakeController(t, c.statuses)
			var out, errs bytes.Buffer
			status := run(t.Context(), []string{"drain", "i2", "--config", config, "--timeout", "1m"}, nil, &out, &errs)
			if status != 0 || !strings.Contains(out.String(), "i2 is empty") || !strings.Contains(errs.String(), c.waits) {
				t.Errorf("status %d, %s%s", status, &out, &errs)
			}
			if n := int(asked.Load()); n != len(c.statuses) {
				t.Errorf("it ended after status %d of %d", n, len(c.statuses))
			}
		})
	}
}

// An instance that somebody put back is not waited for.
func TestADrainThatWasUndone(t *testing.T) {
	config, _ := fakeController(t, []controller.Status{{Leading: true, At: time.Unix(1, 0),
		Instances: []controller.InstanceStatus{{ID: "i2", State: quell.Ready}}}})
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"drain", "i2", "--config", config, "--timeout", "1m"}, nil, &out, &errs); status != exitFailed ||
		!strings.Contains(errs.String(), "i2 was put back in rotation meanwhile") {
		t.Errorf("status %d, %s%s", status, &out, &errs)
	}
}
