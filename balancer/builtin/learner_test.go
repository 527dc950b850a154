package builtin

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/route"
)

func TestLearnersGiveTheSlowInstanceLess(t *testing.T) {
	for _, scheduling := range []quell.Scheduling{quell.EWMA, quell.LeastTime, quell.Prequal} {
		t.Run(string(scheduling), func(t *testing.T) {
			s := start(t, Options{Scheduling: scheduling, Seed: 7})
			slow := newInstance(t, "slow", func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(150 * time.Millisecond)
				io.WriteString(w, "slow")
			})
			a, b, c := newInstance(t, "a", nil), newInstance(t, "b", nil), newInstance(t, "c", nil)
			applyHealthy(t, s, slow.backend(1), a.backend(1), b.backend(1), c.backend(1))
			l := startLoad(t, s, 3)
			l.more(t, 600)
			l.finish(t)
			total := slow.served.Load() + a.served.Load() + b.served.Load() + c.served.Load()
			if got := slow.served.Load(); got == 0 || got > total/8 {
				t.Errorf("the slow one of four got %d of %d requests", got, total)
			}
		})
	}
}

// recorder records the calls of the picker.
type recorder struct {
	route.Learner
	told *[]route.Answer
}

func (r recorder) Done(c *route.Candidate, a route.Answer) {
	*r.told = append(*r.told, a)
	r.Learner.Done(c, a)
}

// The picker learns from an instance's answers and failures. If a client leaves in the middle of an answer, the picker learns nothing about
// the instance.
func TestWhatIsLearned(t *testing.T) {
	s := start(t, Options{Scheduling: quell.EWMA})
	in := newInstance(t, "a", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/broken":
			panic(http.ErrAbortHandler)
		case "/endless":
			io.WriteString(w, "first")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	applyHealthy(t, s, in.backend(1))
	var told []route.Answer
	s.pool.mu.Lock()
	s.pool.learner = recorder{s.pool.learner, &told}
	s.pool.mu.Unlock()
	c := client(t)
	resp, err := c.Get("http://" + s.Addr() + "/endless")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadFull(resp.Body, make([]byte, 5))
	open := func() int64 { return stateOf(t, s, "a").InFlight }
	if _, err := do(c, http.MethodGet, "http://"+s.Addr()+"/", nil); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the whole answer", func() bool { return open() == 1 })
	resp.Body.Close()
	waitFor(t, "the end of the broken-off one", func() bool { return open() == 0 })
	_, _ = do(c, http.MethodPost, "http://"+s.Addr()+"/broken", nil)
	waitFor(t, "the failure", func() bool { return in.served.Load() == 3 && open() == 0 })
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if len(told) != 2 || told[0].Failed || told[0].InFlight != 1 || told[0].Took <= 0 || !told[1].Failed || told[1].InFlight != 0 {
		t.Errorf("told %+v, want an answer that met one other request, and a failure that met none", told)
	}
}
