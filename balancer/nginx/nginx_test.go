package nginx

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
)

// Weights of a person are the base, requests follow the shares that Quell sets, and what was there before comes back.
func TestWeightsShareTheTraffic(t *testing.T) {
	t.Parallel()
	for _, balance := range []string{"", "least_conn;", "random;"} {
		t.Run(balance, func(t *testing.T) {
			t.Parallel()
			a, b := newInstance(t, nil), newInstance(t, nil)
			l := newLab(t, balance, "  server "+a.address()+" weight=30 max_fails=2; # the small one", "  server "+b.address()+" weight=60;")
			l.start()
			before := l.lines()
			d := l.driver(func(o *Options) { o.Members = []quell.Member{a.member("a"), b.member("b")} })
			if s := stateOf(t, d, "b"); s.Base == nil || *s.Base < 1.33 || *s.Base > 1.34 || !s.Foreign || s.Weight < .66 {
				t.Fatalf("at first %+v", s)
			}
			settle(t, d, backend("a", a, 1./3), backend("b", b, 2./3))
			if l.lines() != before {
				t.Errorf("shares as they were changed the file:\n%s", l.lines())
			}
			settle(t, d, backend("a", a, 0.8), backend("b", b, 0.2))
			want := fmt.Sprintf("  server %s weight=4 max_fails=2; # the small one\n  server %s;\n", a.address(), b.address())
			if l.lines() != want {
				t.Errorf("the file is\n%swant\n%s", l.lines(), want)
			}
			if failed := l.get(200, "/"); failed > 0 {
				t.Errorf("%d requests failed", failed)
			}
			if x, y := a.served.Load(), b.served.Load(); x+y != 200 || x < 120 || x > 190 {
				t.Errorf("shares of 0.8 and 0.2 served %d and %d", x, y)
			}
			d = l.driver(nil) // stands for a controller that was killed
			if unknown, err := d.Restore(t.Context()); err != nil || len(unknown) > 0 || l.lines() != before {
				t.Errorf("restored: %v, %v\n%s", unknown, err, l.lines())
			}
		})
	}
}

// A hundred changes of weights under load lose no request: fifty by each rule, because nginx takes at least 0.1 s for each reload.
func TestChangesLoseNothing(t *testing.T) {
	for _, balance := range []string{"", "least_conn;"} {
		t.Run(balance, func(t *testing.T) {
			t.Parallel()
			a, b := newInstance(t, nil), newInstance(t, nil)
			l := newLab(t, balance, "server "+a.address()+";", "server "+b.address()+";")
			l.start()
			d := l.driver(nil)
			failed := l.load()
			for i := range 50 {
				w := 0.3 + 0.4*float64(i%2)
				if err := d.Apply(t.Context(), []quell.Backend{backend("a", a, w), backend("b", b, 1-w)}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond) // more than Every: each Apply is one reload, unless old workers are many
			}
			if n := failed(); n > 0 {
				t.Errorf("%d requests failed", n)
			}
		})
	}
}

func TestInstancesComeDrainAndGo(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	a := newInstance(t, nil)
	b := newInstance(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			<-hold
		}
	})
	l := newLab(t, "")
	l.write(l.include, "# servers of the shop\n")
	d := l.driver(func(o *Options) { o.Server = []string{"max_fails=3"} })
	if err := d.Apply(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "nginx does not run") {
		t.Fatalf("without nginx: %v", err)
	}
	const nobody = "server 127.0.0.1:9 down; # there is no instance\n"
	l.write(l.include, nobody)
	l.start()
	settle(t, d, backend("a", a, 0.5), backend("b", b, 0.5))
	want := fmt.Sprintf("server %s max_fails=3;\nserver %s max_fails=3;\n", a.address(), b.address())
	if l.lines() != want {
		t.Errorf("two instances:\n%q\nwant\n%q", l.lines(), want)
	}
	held := make(chan int, 1)
	go func() { held <- l.get(2, "/hold") }() // one of them reaches b
	eventually(t, "b has an open request", func() bool { return stateOf(t, d, "b").InFlight > 0 })
	out := quell.Backend{ID: "b", Address: b.address(), Draining: true}
	settle(t, d, backend("a", a, 1), out)
	served := b.served.Load()
	if failed := l.get(10, "/"); failed > 0 || b.served.Load() != served {
		t.Errorf("while b drains: %d failed, b got %d more", failed, b.served.Load()-served)
	}
	if s := stateOf(t, d, "b"); s.InFlight != 1 || !s.Draining {
		t.Errorf("draining: %+v", s)
	}
	close(hold)
	if failed := <-held; failed > 0 {
		t.Errorf("the drained request failed")
	}
	eventually(t, "b has no open request", func() bool { return stateOf(t, d, "b").InFlight == 0 })
	settle(t, d, backend("a", a, 1))
	if s := stateOf(t, d, "b"); s.ID != "" || strings.Contains(l.lines(), b.address()) {
		t.Errorf("b left: %+v\n%s", s, l.lines())
	}
	released := l.driver(nil)
	if unknown, err := released.Restore(t.Context()); err != nil || len(unknown) > 0 || l.lines() != nobody {
		t.Errorf("everything is Quell's, and released: %v, %v\n%s", unknown, err, l.lines())
	}
	settle(t, d)
	if l.lines() != nobody {
		t.Errorf("without instances:\n%s", l.lines())
	}
}

// What a person writes into the file wins.
func TestAPersonsEditsWin(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	line := func(i *instance, more string) string { return "server " + i.address() + more + ";\n" }
	l := newLab(t, "", strings.TrimSpace(line(a, "")), strings.TrimSpace(line(b, "")))
	l.start()
	o := func(o *Options) { o.Members = []quell.Member{a.member("a"), b.member("b")} }
	d := l.driver(o)
	even := []quell.Backend{backend("a", a, 0.5), backend("b", b, 0.5)}
	settle(t, d, even...)

	l.write(l.include, line(a, " down")+line(b, ""))
	if s := stateOf(t, d, "a"); s.ByHand == nil || s.Draining || s.Weight != 0 {
		t.Errorf("taken out by hand: %+v", s)
	}
	settle(t, d, even...)
	if !strings.Contains(l.lines(), line(a, " down")) {
		t.Errorf("Quell put it back:\n%s", l.lines())
	}
	d = l.driver(o)
	if s := stateOf(t, d, "a"); s.ByHand == nil {
		t.Errorf("with a new controller: %+v", s)
	}
	settle(t, d, even...)
	if err := d.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	settle(t, d, even...)
	if l.lines() != line(a, "")+line(b, "") {
		t.Errorf("released:\n%s", l.lines())
	}

	l.write(l.include, line(b, "")) // its line is removed
	if s := stateOf(t, d, "a"); s.ByHand == nil {
		t.Errorf("removed by hand: %+v", s)
	}
	settle(t, d, even...)
	l.write(l.include, line(a, " weight=3")+line(b, " max_fails=9"))
	if s := stateOf(t, d, "a"); s.ByHand != nil || s.Base == nil || *s.Base != 1.5 {
		t.Errorf("back, and three times as large: %+v", s)
	}
	settle(t, d, backend("a", a, 0.75), backend("b", b, 0.25))
	if l.lines() != line(a, " weight=3")+line(b, " max_fails=9") {
		t.Errorf("its parameters:\n%s", l.lines())
	}
}

// A configuration that nginx refuses changes nothing.
func TestARefusedConfigurationIsUndone(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	l := newLab(t, "", "server "+a.address()+";")
	l.start()
	d := l.driver(func(o *Options) { o.Server = []string{"nonsense=1"} })
	settle(t, d, backend("a", a, 1))
	before := l.lines()
	for range 2 {
		err := d.Apply(t.Context(), []quell.Backend{backend("a", a, 0.5), backend("b", b, 0.5)})
		if err == nil || !strings.Contains(err.Error(), "nonsense") || l.lines() != before {
			t.Fatalf("%v\n%s", err, l.lines())
		}
	}
	if failed := l.get(5, "/"); failed > 0 {
		t.Errorf("%d requests failed", failed)
	}
	if s := stateOf(t, d, "b"); s.ID != "" {
		t.Errorf("b is there: %+v", s)
	}
	if s := stateOf(t, d, "a"); s.Address == "" || s.ByHand != nil {
		t.Errorf("a is %+v", s)
	}
}

// A controller that is killed between the writing and the reload leaves the change to the next one.
func TestAnInterruptedChangeIsFinished(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	l := newLab(t, "", "server "+a.address()+";", "server "+b.address()+";")
	l.start()
	kept := filepath.Join(l.dir, "kept")
	d := l.driver(func(o *Options) { // keeps what a killed controller would leave, and fails
		o.Test = []string{"sh", "-c", `mkdir "$1" && cp "$2" "$3" "$1" && exit 1`, "sh", kept, l.include, o.Memory}
	})
	list := []quell.Backend{backend("a", a, 0.9), backend("b", b, 0.1)}
	if err := d.Apply(t.Context(), list); err == nil {
		t.Fatal("no error")
	}
	for _, path := range []string{l.include, l.options().Memory} {
		if err := os.Rename(filepath.Join(kept, filepath.Base(path)), path); err != nil {
			t.Fatal(err)
		}
	}
	d = l.driver(nil)
	if s := stateOf(t, d, "a"); s.Address != "" {
		t.Errorf("before it is finished: %+v", s)
	}
	settle(t, d, list...)
	l.get(100, "/")
	if x, y := a.served.Load(), b.served.Load(); x < 80 || y > 20 || x+y != 100 {
		t.Errorf("shares of 0.9 and 0.1 served %d and %d:\n%s", x, y, l.lines())
	}
}

// An edit that a person makes while nginx checks a configuration, which it then refuses, is not lost.
func TestAnEditDuringACheckStays(t *testing.T) {
	t.Parallel()
	a, b := newInstance(t, nil), newInstance(t, nil)
	l := newLab(t, "", "server "+a.address()+";", "server "+b.address()+";")
	l.start()
	edited := "# by hand\nserver " + a.address() + ";\nserver " + b.address() + ";\n"
	d := l.driver(func(o *Options) { o.Test = []string{"sh", "-c", `printf "$1" >"$2"; exit 1`, "sh", edited, l.include} })
	err := d.Apply(t.Context(), []quell.Backend{backend("a", a, 0.9), backend("b", b, 0.1)})
	if err == nil || !strings.Contains(err.Error(), "somebody has changed") || l.lines() != edited {
		t.Errorf("%v\n%s", err, l.lines())
	}
}

// An instance that gets another address leaves no line that goes on serving at the old one: a line that Quell added goes, and one that a
// person wrote is down until the instance comes back, or until a release.
func TestAnInstanceMoves(t *testing.T) {
	t.Parallel()
	for _, declared := range []bool{false, true} {
		t.Run(fmt.Sprint("declared ", declared), func(t *testing.T) {
			t.Parallel()
			a, moved, b := newInstance(t, nil), newInstance(t, nil), newInstance(t, nil)
			line := func(i *instance, more string) string { return "server " + i.address() + more + ";\n" }
			before := line(b, " weight=30")
			if declared {
				before = line(a, " weight=60") + before
			}
			l := newLab(t, "", strings.TrimSpace(before))
			l.start()
			d := l.driver(nil)
			there := []quell.Backend{backend("a", a, 0.5), backend("b", b, 0.5)}
			elsewhere := []quell.Backend{backend("a", moved, 0.5), backend("b", b, 0.5)}
			check := func(list []quell.Backend, want string) {
				t.Helper()
				settle(t, d, list...)
				if l.lines() != want {
					t.Errorf("the file is\n%swant\n%s", l.lines(), want)
				}
				if states, err := d.State(t.Context()); err != nil || len(states) != 2 {
					t.Errorf("in force are %+v, %v", states, err)
				}
			}
			if declared {
				check(there, line(a, "")+line(b, ""))
				check(elsewhere, line(a, " down")+line(b, "")+line(moved, ""))
				check(there, line(a, "")+line(b, ""))
				check(elsewhere, line(a, " down")+line(b, "")+line(moved, ""))
			} else {
				check(there, line(b, "")+line(a, ""))
				check(elsewhere, line(b, "")+line(moved, ""))
			}
			served := a.served.Load()
			if failed := l.get(20, "/"); failed > 0 || a.served.Load() != served {
				t.Errorf("%d requests failed, and the old address got %d", failed, a.served.Load()-served)
			}
			d = l.driver(nil) // stands for a controller that was killed
			if unknown, err := d.Restore(t.Context()); err != nil || len(unknown) > 0 || l.lines() != before {
				t.Errorf("restored: %v, %v\n%s", unknown, err, l.lines())
			}
		})
	}
}

// What is stored of instances that left can be read again at once. nginx is not needed: the file is as it should be.
func TestAnInstanceThatLeftIsForgotten(t *testing.T) {
	dir := t.TempDir()
	o := Options{Include: filepath.Join(dir, "web.conf"), Memory: filepath.Join(dir, "nginx.json")}
	for path, text := range map[string]string{o.Include: "server 127.0.0.1:1;\n", o.Memory: `[{"id": "b", "address": "127.0.0.1:2", "added": true},
		{"id": "a", "address": "127.0.0.1:1", "base": 1, "weight": 1}]`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Apply(t.Context(), []quell.Backend{{ID: "a", Address: "127.0.0.1:1", Weight: 1}}); err != nil {
		t.Fatal(err)
	}
	if next, err := New(o); err != nil || len(next.entries) != 1 {
		t.Errorf("the next controller: %v", err)
	}
}

// Only one controller changes the file.
func TestOwner(t *testing.T) {
	t.Parallel()
	l := newLab(t, "", "server 127.0.0.1:9;")
	first, second := l.driver(nil), l.driver(nil)
	if err := first.Own(t.Context(), quell.Owner{ID: "1", Name: "ops-1"}); err != nil {
		t.Fatal(err)
	}
	var owned *quell.OwnedError
	if err := second.Own(t.Context(), quell.Owner{ID: "2", Name: "ops-2"}); !errors.As(err, &owned) || owned.Owner.Name != "ops-1" {
		t.Errorf("the second one: %v", err)
	}
	if err := errors.Join(first.Disown(t.Context()), second.Own(t.Context(), quell.Owner{ID: "2"})); err != nil {
		t.Error(err)
	}
	second.Close()
}

var _ balancer.Driver = (*Driver)(nil)
