package kernel

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

// startCalendar prepares and starts a calendar on a host of the lab.
func startCalendar(t *testing.T, l *Lab, host, data string) *Calendar {
	t.Helper()
	c := &Calendar{Place: place(t, l, host, Instance), Dir: filepath.Join(l.options.Dir, host+"-calendar"), Data: data}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	t.Cleanup(func() { stopCalendar(t, c) })
	for _, step := range []func() error{c.Prepare, func() error { return c.Start(ctx) }} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func stopCalendar(t *testing.T, c *Calendar) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Grace)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// Two calendars have equal data, and pages that differ in size. When one of a calendar's servers is killed, the calendar says which.
func TestCalendar(t *testing.T) {
	need.Root(t)
	if err := CheckCalendar(); err != nil {
		need.Skip(t, err.Error())
	}
	l := newLab(t, Options{Hosts: []Host{{ID: "h1"}, {ID: "h2"}}})
	data := filepath.Join(l.options.Dir, "calendar-data")
	for range 2 { // the second call keeps what the first one made
		if err := MakeCalendar(t.Context(), data); err != nil {
			t.Fatal(err)
		}
	}
	calendars := []*Calendar{startCalendar(t, l, "h1", data), startCalendar(t, l, "h2", data)}
	browser := client(place(t, l, "", Client), true)
	for page, c := range map[string]struct {
		has         string
		least, most int
	}{
		"HomePage": {"Event 7</a>", 1_000, 6_000}, "TagSearch": {"Events with tag7", 800, 6_000},
		"EventDetail": {"<h1>Event 7</h1>", 100_000, 110_000},
	} {
		var bodies []string
		for _, calendar := range calendars {
			reply, err := browser.Get("http://" + calendar.Place.Address().String() + CalendarPage(page, 7))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(reply.Body)
			reply.Body.Close()
			fits := strings.Contains(string(body), c.has) && len(body) >= c.least && len(body) <= c.most
			if err != nil || reply.StatusCode != http.StatusOK || !fits {
				t.Errorf("%s: %s, %d bytes, %v: %.300s", page, reply.Status, len(body), err, body)
			}
			bodies = append(bodies, string(body))
		}
		if bodies[0] != bodies[1] {
			t.Errorf("%s differs between two calendars", page)
		}
	}
	if calendars[0].Failed() != nil {
		t.Error(calendars[0].Failed())
	}
	stopCalendar(t, calendars[1])
	if _, err := os.Stat(calendars[1].data()); err == nil {
		t.Error("a stopped calendar leaves its data")
	}
	_ = calendars[0].servers[1].run.cmd.Process.Kill()
	select {
	case <-calendars[0].Done():
	case <-time.After(patience):
		t.Fatal("a killed server is not noticed")
	}
	if err := calendars[0].Failed(); err == nil || !strings.Contains(err.Error(), "php-fpm ended by itself") {
		t.Errorf("got %v", err)
	}
}
