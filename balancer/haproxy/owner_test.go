package haproxy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

var (
	east = quell.Owner{ID: "EAST", Name: "east:/var/lib/quell"}
	west = quell.Owner{ID: "WEST", Name: "west:/var/lib/quell"}
)

// ownable is a HAProxy, with a clock that the drivers use.
func ownable(t *testing.T) (l *lab, now *time.Time, driver func() *Driver) {
	t.Helper()
	a := newInstance(t, 0)
	l = newLab(t, declared("a", a.address()))
	l.start()
	now = new(time.Time)
	*now = time.Now()
	return l, now, func() *Driver { return l.driver(func(o *Options) { o.Now = func() time.Time { return *now } }) }
}

func wantOwner(t *testing.T, d *Driver, owner quell.Owner) {
	t.Helper()
	if err := d.Own(context.Background(), owner); err != nil {
		t.Fatalf("%s: %v", owner.ID, err)
	}
}

func wantRefusal(t *testing.T, d *Driver, owner, by quell.Owner) {
	t.Helper()
	var owned *quell.OwnedError
	if err := d.Own(context.Background(), owner); !errors.As(err, &owned) || owned.Owner != by {
		t.Fatalf("%s got %v, want a refusal for %s", owner.ID, err, by.Name)
	}
}

// One controller owns a backend. A second controller is refused, with the name of the owner, until the owner has not renewed its lease for
// the lease's duration.
func TestOneOwner(t *testing.T) {
	_, now, driver := ownable(t)
	first, second := driver(), driver()
	wantOwner(t, first, east)
	for range 5 {
		wantRefusal(t, second, west, east)
		*now = now.Add(10 * time.Second)
		wantOwner(t, first, east)
	}
	wantOwner(t, driver(), east) // the same controller after a restart
	wantRefusal(t, second, west, east)
	*now = now.Add(15 * time.Second)
	wantOwner(t, second, west)
	wantRefusal(t, first, east, west)
}

// When the owner stops, it gives up the backend at once.
func TestDisown(t *testing.T) {
	_, _, driver := ownable(t)
	first, second := driver(), driver()
	wantOwner(t, first, east)
	wantRefusal(t, second, west, east)
	if err := first.Disown(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantOwner(t, second, west)
}

// HAProxy forgets its owner in a restart and in a reload. The owner registers again at once, and no other controller takes over before
// that.
func TestOwnerAfterARestart(t *testing.T) {
	for name, restart := range map[string]func(*lab){"restart": func(l *lab) { l.kill(); l.start() }, "reload": (*lab).reload} {
		t.Run(name, func(t *testing.T) {
			l, now, driver := ownable(t)
			first, second := driver(), driver()
			wantOwner(t, first, east)
			wantRefusal(t, second, west, east)
			if _, err := second.State(context.Background()); err != nil {
				t.Fatal(err)
			}
			restart(l)
			for _, d := range []*Driver{first, second} { // close connections to the process that is being replaced
				if _, err := d.State(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			wantRefusal(t, second, west, east)
			wantOwner(t, first, east)
			*now = now.Add(14 * time.Second)
			wantRefusal(t, second, west, east)
		})
	}
}

// Two controllers that find the backend without an owner at the same moment agree on one.
func TestTwoAtTheSameMoment(t *testing.T) {
	_, _, driver := ownable(t)
	drivers, owners := []*Driver{driver(), driver()}, []quell.Owner{east, west}
	results := make(chan error, 2)
	for i := range drivers {
		go func() { results <- drivers[i].Own(context.Background(), owners[i]) }()
	}
	<-results
	<-results
	owns := 0
	for i := range drivers { // as each controller does with its next step
		if drivers[i].Own(context.Background(), owners[i]) == nil {
			owns++
		}
	}
	if owns != 1 {
		t.Errorf("%d own it", owns)
	}
}

// If a HAProxy cannot store variables, the driver uses it without an owner, and logs that once.
func TestWithoutAnOwner(t *testing.T) {
	asked := 0
	path := fake(t, func(command string) (string, bool) {
		if strings.HasPrefix(command, "get var") {
			asked++
			return "Unknown command: 'get var', but maybe one of the following ones is a better match:\n", true
		}
		return "", true
	})
	l := newSayings()
	d, err := New(Options{Sockets: []string{path}, Backend: "app", Logger: l.logger()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 3 {
		wantOwner(t, d, east)
	}
	if asked != 1 || l.count("cannot keep which controller") != 1 {
		t.Errorf("asked %d times; the log says %s", asked, l)
	}
	if name := ownerVariable("a-b.c"); name != "proc.quell_owner_a_2db_2ec" {
		t.Errorf("the variable is %s", name)
	}
}
