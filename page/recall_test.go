package page_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/page"
)

// crowd is the journal of a large service: a snapshot each ten seconds, up to a moment.
type crowd struct {
	recorded
	instances []quell.Instance
	until     time.Time
}

func (c *crowd) ReadSnapshots(_ context.Context, since time.Time, fn func(quell.Snapshot) error) error {
	for at := since.Truncate(10 * time.Second).Add(10 * time.Second); !at.After(c.until); at = at.Add(10 * time.Second) {
		if err := fn(quell.Snapshot{At: at, Service: "shop", Instances: c.instances}); err != nil {
			return err
		}
	}
	return nil
}

// After a restart beside a service with many instances the page has the newest of the past hours, as far as there is time to read them.
func TestTheNewestPastIsRecalled(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	x := &fixture{fake: &fake{}, start: now.Add(-time.Hour)}
	x.set(func(s *controller.Status) {
		*s = controller.Status{Service: "shop", At: now, SamplingS: 10, Instances: make([]controller.InstanceStatus, 1000)}
	})
	mux := http.NewServeMux()
	x.http = httptest.NewServer(mux)
	t.Cleanup(x.http.Close)
	x.server = page.New(page.Options{Recorded: &crowd{instances: make([]quell.Instance, 1000), until: now.Add(-10 * time.Second)},
		Listen: strings.TrimPrefix(x.http.URL, "http://"), Poll: time.Millisecond, Now: func() time.Time { return now }})
	x.server.Show(x)
	mux.Handle("/", x.server.Handler())
	first := x.now(t).Generation
	go x.server.Run(t.Context())
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		n := x.now(t)
		if n.Generation == first && time.Now().Before(deadline) {
			continue
		}
		if k := len(n.Points); k < 190 || n.Points[k-2].At != now.Add(-10*time.Second).UnixMilli() {
			t.Errorf("%d points, up to %v", k, n.Points)
		}
		return
	}
}
