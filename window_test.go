package quell_test

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/quellhq/quell"
)

func TestWindow(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	const h = time.Hour
	night, over := quell.Window{From: 2 * h, To: 4 * h}, quell.Window{From: 23 * h, To: h + 30*time.Minute}
	for _, c := range []struct {
		about  string
		w      quell.Window
		now    string // in Berlin
		inside bool
		left   time.Duration
		next   string
	}{
		{"before", night, "2026-06-01 01:59:59", false, 0, "2026-06-01 02:00:00"},
		{"its first moment", night, "2026-06-01 02:00:00", true, 2 * h, "2026-06-02 02:00:00"},
		{"within", night, "2026-06-01 03:15:00", true, 45 * time.Minute, "2026-06-02 02:00:00"},
		{"its end", night, "2026-06-01 04:00:00", false, 0, "2026-06-02 02:00:00"},
		{"over midnight, before it", over, "2026-12-31 23:30:00", true, 2 * h, "2027-01-01 23:00:00"},
		{"over midnight, after it", over, "2027-01-01 01:00:00", true, 30 * time.Minute, "2027-01-01 23:00:00"},
		{"over midnight, at noon", over, "2027-01-01 12:00:00", false, 0, "2027-01-01 23:00:00"},
		{"the night without two o'clock", night, "2026-03-29 01:59:00", false, 0, "2026-03-29 03:00:00"},
		{"the same, an hour later", night, "2026-03-29 03:00:00", true, h, "2026-03-30 02:00:00"},
		{"never", quell.Window{}, "2026-06-01 00:00:00", false, 0, ""},
	} {
		t.Run(c.about, func(t *testing.T) {
			now, err := time.ParseInLocation(time.DateTime, c.now, berlin)
			if err != nil {
				t.Fatal(err)
			}
			left, inside := c.w.Left(now)
			if inside != c.inside || inside && left != c.left {
				t.Errorf("inside %v, %v left", inside, left)
			}
			if next := c.w.Next(now).Format(time.DateTime); c.next != "" && next != c.next {
				t.Errorf("next %s, want %s", next, c.next)
			}
		})
	}
	if text := over.String(); text != "23:00-01:30" {
		t.Error(text)
	}
}
