package daemon_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/scaler/command"
)

// The start program writes its machine down and hangs until it is killed; the list program shows machines 90 s late.
const (
	hangs = `read line; n=${line##*:}; n=${n%\}}; read at < clock
while [ $n -gt 0 ]; do echo $at >> machines; n=$((n - 1)); done
sleep 600`
	late = `read now < clock; comma=; echo [
while read at; do
	k=$((k + 1)); [ $((now - at)) -lt 90 ] && continue
	echo "$comma{\"id\":\"m$k\",\"address\":\"10.0.0.$k:80\",\"state\":\"ready\"}"; comma=,
done < machines
echo ]`
)

// TestASlowStartProgram runs a controller with real programs, and moves its clock. In ten minutes no more than group.max machines are
// ordered.
func TestASlowStartProgram(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	clock, now := filepath.Join(folder, "clock"), time.Now()
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(folder, "machines"), "")
	in := func(script string) []string { return []string{"sh", "-c", "cd " + folder + "\n" + script} }
	scaler, err := command.New(command.Options{
		Start: in(hangs), List: in(late), Stop: []string{"false"}, Timeout: 3 * time.Second, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	service := quell.DefaultService()
	service.Name, service.Policy.Name = "shop", "static"
	service.SLO = quell.SLO{Metric: quell.Mean, Threshold: 75 * time.Millisecond}
	service.Group.Min, service.Group.Max = 3, 4
	kept := &inMemory{values: map[string][]byte{}}
	c, err := controller.New(controller.Options{
		Service: service, Policies: table.All, Balancer: kept, Scaler: scaler, Journal: kept, Memory: kept, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	for second := 0; second <= 600; second += 10 {
		write(clock, fmt.Sprintln(now.Unix()))
		c.Step(t.Context())
		now = now.Add(10 * time.Second)
	}
	machines, err := os.ReadFile(filepath.Join(folder, "machines"))
	if n := strings.Count(string(machines), "\n"); err != nil || n != 4 {
		t.Errorf("%d machines were ordered, want group.max: %v", n, err)
	}
	if len(c.Status().Instances) != 4 {
		t.Errorf("instances %+v", c.Status().Instances)
	}
	if text := fmt.Sprint(kept.events); !strings.Contains(text, "3 instance(s) may have started: starting 3 instances: running sh: "+
		"it took longer than 3s") || !strings.Contains(text, "1 instance(s) may have started") {
		t.Errorf("events %s", text)
	}
}

// inMemory is a balancer, a journal and a memory that fail in nothing.
type inMemory struct {
	backends []quell.Backend
	events   []string
	values   map[string][]byte
}

func (m *inMemory) Apply(_ context.Context, list []quell.Backend) error {
	m.backends = list
	return nil
}

func (m *inMemory) State(context.Context) (states []quell.BackendState, err error) {
	for _, b := range m.backends {
		states = append(states, quell.BackendState{Backend: b, Healthy: true})
	}
	return states, nil
}

func (m *inMemory) Append(_ context.Context, e bus.Entry) error {
	if e.Kind == bus.EventEntry {
		m.events = append(m.events, e.Text)
	}
	return nil
}

func (m *inMemory) AppendSnapshot(context.Context, quell.Snapshot) error { return nil }

func (m *inMemory) Put(_ context.Context, key string, value []byte) error {
	m.values[key] = value
	return nil
}

func (m *inMemory) Get(_ context.Context, key string) ([]byte, error) {
	if value, ok := m.values[key]; ok {
		return value, nil
	}
	return nil, quell.ErrNoData
}
