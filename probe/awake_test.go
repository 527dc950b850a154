package probe

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
)

// Probes that time out count, unless the target stood still. If it answers nothing for a whole window, they count: only the agent's silence
// tells then that it stands still.
func TestProbesOfATargetThatStandsStill(t *testing.T) {
	const late = 125 // the timeout, in ms
	for _, c := range []struct {
		name     string
		from, to float64 // in seconds: meanwhile nothing is answered
		beats    func(awake, all time.Duration) int64
		want     []float64 // means by window, in ms; 0: between 10 and the timeout
	}{
		{"within a window", 1.2, 1.9, standing, []float64{10, 10, 10}},
		{"over the end of a window", 1.6, 2.3, standing, []float64{10, 10, 10}},
		{"for whole windows", 1.6, 4.6, standing, []float64{10, 10, late, late, 10}},
		{"and is started again", 1.2, 1.9, func(awake, all time.Duration) int64 {
			if all > 1300*time.Millisecond {
				return int64(max(0, all-1850*time.Millisecond) / beat)
			}
			return int64(all / beat)
		}, []float64{10, 10, 10}},
		{"a congested link", 1.2, 1.9, func(_, all time.Duration) int64 { return int64(all / beat) }, []float64{10, 0, 10}},
		{"a congested link over the end of a window", 1.6, 2.3, func(_, all time.Duration) int64 { return int64(all / beat) },
			[]float64{10, 10, 0}},
		{"a target that does not tell", 1.2, 1.9, func(time.Duration, time.Duration) int64 { return 0 }, []float64{10, 0, 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, j, begin := newNetwork(t), &journal{}, time.Now()
				from, to := time.Duration(c.from*float64(time.Second)), time.Duration(c.to*float64(time.Second))
				in := n.add("a:1", func(int) time.Duration {
					if at := time.Since(begin); at >= from && at < to {
						return to - at
					}
					return 10 * time.Millisecond
				})
				in.beats = func() int64 {
					all := time.Since(begin)
					return c.beats(all-max(0, min(all, to)-from), all)
				}
				p := run(t, options(n, j, Target{"i1", "a:1"}))
				afterPeriods(len(c.want))
				var got []string
				for _, r := range j.take() {
					mean := r.Observation.Probe[quell.Network].MeanMS
					if k := len(got); k < len(c.want) && (mean == c.want[k] || c.want[k] == 0 && mean > 10 && mean < late) {
						mean = c.want[k]
					}
					got = append(got, fmt.Sprint(mean))
				}
				if want := words(c.want); !slices.Equal(got, want) {
					t.Errorf("means %v, want %v; %+v", got, want, p.Stats())
				}
				if s := p.Stats(); s.Timeouts < 3 || (s.StoodStill == 1) != !slices.Contains(c.want, 0) {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// standing is what a server that stands still tells: the beats of the time in which it was awake.
func standing(awake, _ time.Duration) int64 { return int64(awake / beat) }

func words(values []float64) (list []string) {
	for _, v := range values {
		list = append(list, fmt.Sprint(v))
	}
	return list
}

func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerOptions{Token: token})
		answer := func() string {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/probe?size=7", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			s.ServeHTTP(w, r)
			return w.Header().Get(awakeHeader)
		}
		if got := answer(); got != "" {
			t.Errorf("a server that was not started tells %q", got)
		}
		go s.pulse.run()
		time.Sleep(10*beat + beat/2)
		if got := answer(); got != "10" {
			t.Errorf("after ten beats it tells %q", got)
		}
		s.pulse.end()
		s.pulse.end()
	})
}

func TestBeatsThatMakeNoSense(t *testing.T) {
	const most = 1<<35 - 1
	for text, want := range map[string]int64{"": 0, "7": 7, "-7": 0, "7.5": 0, "34359738367": most, "34359738368": 0} {
		if got := beatsIn(http.Header{awakeHeader: {text}}); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	var d doubt
	now := time.Unix(100, 0)
	d.answered(now, 1)
	d.timedOut(now.Add(time.Second), 100)
	if count, asleep := d.answered(now.Add(2*time.Second), most); !slices.Equal(count, []float64{100}) || asleep != 0 {
		t.Errorf("%v after %v: more beats than time", count, asleep)
	}
}
