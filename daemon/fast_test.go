package daemon_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell/controller"
)

// sluggish is a server whose answers can be delayed.
type sluggish struct {
	*httptest.Server
	wait atomic.Int64 // nanoseconds
}

func newSluggish(t *testing.T) *sluggish {
	t.Helper()
	s := &sluggish{}
	body := strings.Repeat("x", 20000)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/file" {
			time.Sleep(time.Duration(s.wait.Load()))
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *sluggish) slow(d time.Duration) { s.wait.Store(int64(d)) }

// A fast policy runs beside a policy with equal weights. A server that becomes slow loses most of its share. Its share stays small while
// the controller is killed and the next one takes over, and returns when the server is fast again. No request fails.
func TestAFastPolicyOnALiveFleet(t *testing.T) {
	t.Parallel()
	servers := []*sluggish{newSluggish(t), newSluggish(t), newSluggish(t)}
	r := newRig(t, "")
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = fmt.Sprintf("{id: s%d, address: %q}", i+1, s.Listener.Addr())
	}
	r.write(`policy: {name: static, fast: {name: outlier, sampling: 150ms, requests: 2, hold: 1s}}
scaler: {instances: [` + strings.Join(list, ", ") + "]}\n")
	r.start("controller")
	r.start("balancer")
	equal := map[string]float64{"s1": 1. / 3, "s2": 1. / 3, "s3": 1. / 3}
	r.awaitWeights(equal)
	load := flow(r)
	servers[1].slow(700 * time.Millisecond) // the objective is 500 ms
	isCut := func(s controller.Status) bool {
		return len(s.Instances) == 3 && s.Instances[1].Cut != nil && s.Instances[1].Weight != nil && *s.Instances[1].Weight < 0.1
	}
	r.awaitStatus("s2 to be cut", isCut)
	r.await("the balancer to send it less", func() (bool, any) {
		w, err := r.weights()
		return err == nil && w["s2"] < 0.1, fmt.Sprint(w, err)
	})
	r.procs[0].kill(t)
	r.start("controller")
	r.awaitStatus("the next controller to keep the cut", isCut)
	if w, err := r.weights(); err != nil || w["s2"] > 0.2 {
		t.Errorf("after the next controller began the balancer has %v, %v", w, err)
	}
	servers[1].slow(0)
	r.awaitWeights(equal)
	load.wantNoFailures()
	if out, _ := r.quell("journal", "--config", r.config); !has(out, "where the others have") {
		t.Errorf("the journal says\n%s", out)
	}
}
