package experiment

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		if e.Held != "" && !e.Anyway {
			t.Errorf("%s was stopped during: %s", e.Instance, e.Held)
		}
	}
	for _, kind := range []string{"ordinary 200", "sticky 200", "cancel cancelled", "limited 429"} {
		if r.Clients[kind] == 0 {
			t.Errorf("no client saw %q: %v", kind, r.Clients)
		}
	}
}

// Shares are judged while an instance gets requests and has had them for a while. One without a fault that lost more than a tenth is wrong,
// and so is a stop of one that was taken out.
func TestMixIsJudged(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	r := &MixRecord{SamplingS: 1, Cuts: map[string]int{"web-2": 7, "web-6": 5}, Acts: []MixAct{{Instance: "web-1", From: at(5), To: at(5)}}}
	for s := range 20 {
		weights := map[string]int{"web-1": 100, "web-2": 100, "web-3": 0, "web-6": 1}
		switch {
		case s >= 10: // web-2 is cut, and web-3 comes back step by step
			weights["web-2"], weights["web-3"] = 10, min(100, 30*(s-9))
		case s == 5:
			delete(weights, "web-1")
		}
		r.Looks = append(r.Looks, MixLook{at(s), weights})
	}
	r.Shares = r.shares()
	want := map[string]struct{ judged, below, longest int }{
		"web-1": {20 - 3 - 1 - 3, 0, 0}, "web-2": {17, 10, 10}, "web-3": {7, 0, 0}, "web-6": {17, 17, 17},
	}
	for _, s := range r.Shares {
		got := want[s.Instance]
		if s.Judged != got.judged || s.Below != got.below || s.Longest != got.longest || s.Lame != (s.Instance == "web-6") {
			t.Errorf("%+v, want %+v", s, got)
		}
	}
	if len(r.Shares) != len(want) || r.Shares[1].Cuts != 7 || math.Abs(r.Shares[0].Mean-1.416) > 0.001 {
		t.Errorf("%+v", r.Shares)
	}
	r.Ends = []MixEnd{{Instance: "web-4"}, {Instance: "web-5", Held: "soft stop"}}
	r.Ends = append(r.Ends, MixEnd{At: at(7), Instance: "web-3", Held: "zero"}, MixEnd{At: at(7), Instance: "web-1", Held: "drain"})
	r.Acts = []MixAct{{Act: "zero", Instance: "web-3", From: at(6), To: at(9)}, {Act: "drain", Instance: "web-1", From: at(6), To: at(9)}}
	r.excuse()
	wrong := r.Wrong()
	if len(wrong) != 5 || !r.Ends[2].Anyway || !strings.HasPrefix(wrong[4], "web-1 was stopped during") ||
		!strings.HasPrefix(wrong[0], "web-2 has no fault, and got") || !strings.HasSuffix(wrong[1], "for 10 s in a row") ||
		wrong[2] != "web-2 has no fault, and 7 plans held it back as an outlier" || wrong[3] != "web-5 was stopped during: soft stop" {
		t.Errorf("%q", wrong)
	}
}

// An instance that gets nothing is judged too, unless an act took it out, or it is about to be stopped.
func TestMixSeesEjections(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	r := &MixRecord{SamplingS: 1, Ends: []MixEnd{{At: at(20), Instance: "web-3"}},
		Acts: []MixAct{{Instance: "web-2", From: at(10), To: at(16)}, {Instance: "web-4", From: at(10), To: at(12)}}}
	for s := range 40 {
		weights := map[string]int{"web-1": 100, "web-2": 100, "web-3": 100, "web-4": 100, "web-5": 100, "web-6": 100}
		if s >= 10 && s < 13 { // ejected, and back at once; HAProxy shows a server with weight 0 as one that drains
			delete(weights, "web-1")
		}
		if s >= 10 && s < 18 { // out by the act, and for a moment after it
			delete(weights, "web-2")
		}
		if s >= 15 && s < 30 { // drains, is stopped at 20, and started again at 30
			weights["web-3"] = 0
		}
		if s >= 10 { // never comes back from the act
			weights["web-4"] = 0
		}
		if s >= 30 { // ejected for the rest
			weights["web-5"] = 0
		}
		r.Looks = append(r.Looks, MixLook{at(s), weights})
	}
	r.Shares = r.shares()
	for i, below := range []int{3, 0, 0, 40 - 12 - 3 - 3, 10, 0} {
		if got := r.Shares[i]; got.Below != below || got.Longest != below {
			t.Errorf("%+v, want %d s below", got, below)
		}
	}
	var about []string
	for _, text := range r.Wrong() {
		about = append(about, text[:len("web-1")])
	}
	if !slices.Equal(about, []string{"web-1", "web-4", "web-4", "web-5", "web-5"}) {
		t.Errorf("%q", r.Wrong())
	}
}

// An act is named if the journal has its instance and its reason, once for each time.
func TestMixActsAreNamed(t *testing.T) {
	act := func(n int, instance string) MixAct {
		return MixAct{Act: mixActs[n].name, Instance: instance, Seen: true}
	}
	r := &MixRecord{Acts: []MixAct{act(0, "web-2"), act(0, "web-2"), act(2, "web-4"), act(5, "web-3"), {Act: "soft stop", Lost: "gone"}},
		Events: []string{
			"web-2 is out of rotation at haproxy: it tracks infra/web-2, which is in maintenance. It gets no requests until that ends",
			"web-3 was taken out of rotation by hand at haproxy: it gets no requests until it is put back there",
			"web-44 is out of rotation at haproxy: it took itself out: its health check is answered with 404",
		}}
	if got := r.named(); got != 2 || len(r.Happened()) != 4 {
		t.Errorf("%d of %d acts are named, want 2 of 4", got, len(r.Happened()))
	}
}
