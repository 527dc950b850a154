package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

func redlineKeys(r *quell.Redline) setting.Table {
	return setting.Table{
		setting.Opt("nightly", window(&r.Nightly),
			"daily time in which the controller may raise one instance's share step by step, to learn what it carries within the objective, as in "+
				"02:00-04:30, in the local time of the controller's machine; off: it never does"),
		setting.Opt("instances", setting.Idents(&r.Instances), "ids of the instances that are tested in turn").Or("all"),
		setting.Opt("tests", setting.Whole(&r.Tests).Between(1, 100), "most instances in one night, one after the other"),
		setting.Opt("risk", setting.Share(&r.Risk).Need("above 0% and up to 50%", func(v float64) bool { return v > 0 && v <= 0.5 }),
			"share of the service's requests that may miss the objective because of a test"),
	}
}

// Bounds of a window. After a test there are 18 hours without one, so that a clock that is set back does not repeat a night.
const (
	shortestWindow = 5 * time.Minute
	longestWindow  = 12 * time.Hour
)

// window reads a daily time, or the word off, which it stores as the zero value.
func window(dst *quell.Window) *setting.Scalar[quell.Window] {
	const off = "off"
	parse := func(text string) (w quell.Window, err error) {
		if text == off {
			return w, nil
		}
		from, to, ok := strings.Cut(text, "-")
		if !ok {
			return w, errors.New("no window")
		}
		if w.From, err = clock(from); err == nil {
			w.To, err = clock(to)
		}
		return w, err
	}
	format := func(w quell.Window) string {
		if w.Length() == 0 {
			return off
		}
		return w.String()
	}
	return setting.Parsed(dst, "off, or a daily time as in 02:00-04:30", parse, format).Then(func(w quell.Window) string {
		if length := w.Length(); w != (quell.Window{}) && (length < shortestWindow || length > longestWindow) {
			return "must last between " + setting.FormatDuration(shortestWindow) + " and " + setting.FormatDuration(longestWindow)
		}
		return ""
	})
}

// clock reads a time of day in whole minutes.
func clock(text string) (time.Duration, error) {
	at, err := time.Parse("15:04", strings.TrimSpace(text))
	if err != nil {
		return 0, err
	}
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, nil
}

// checkRedline checks that the instances to be tested are listed, if a person wrote the list.
func checkRedline(d *setting.Decoder, f *File) {
	members, listed := f.Scaler.Listed()
	if !listed || !d.Sound("redline.instances", "scaler") {
		return
	}
	for i, id := range f.Service.Redline.Instances {
		if !slices.ContainsFunc(members, func(m quell.Member) bool { return m.ID == id }) {
			d.Refuse(fmt.Sprintf("redline.instances[%d]", i), "name instances of scaler.instances", "there is no instance %q", id)
		}
	}
}
