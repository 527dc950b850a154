package chart

import (
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell/report"
)

// The picture shows each cause in its colour, and what is expected otherwise.
func TestReport(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &report.Report{Sentence: "Acting would have saved 9 min.", Since: began, Until: began.Add(24 * time.Hour)}
	for i := range 144 {
		b := report.Bin{At: began.Add(time.Duration(i) * 10 * time.Minute)}
		if i > 60 && i < 80 {
			b.Kind, b.MissedS, b.OtherS = report.Interference, 500, 200
		}
		r.Timeline = append(r.Timeline, b)
	}
	path := filepath.Join(t.TempDir(), "report.png")
	if err := Report(path, r); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	image, err := png.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]string{"interference": report.Colours[report.Interference], "otherwise": report.OtherColour} {
		want, seen := hexColour(c), 0
		r, g, b, _ := want.RGBA()
		for y := range image.Bounds().Dy() {
			for x := range image.Bounds().Dx() {
				if r1, g1, b1, _ := image.At(x, y).RGBA(); r1 == r && g1 == g && b1 == b {
					seen++
				}
			}
		}
		if seen < 1000 {
			t.Errorf("%d pixels show %s", seen, what)
		}
	}
	if err := Report(path, &report.Report{Since: began, Until: began}); err != nil {
		t.Errorf("without records: %v", err)
	}
}

func TestClockTicks(t *testing.T) {
	at := func(d time.Duration) float64 {
		return float64(time.Date(2026, 1, 1, 0, 7, 0, 0, time.UTC).Add(d).Unix())
	}
	for d, want := range map[time.Duration]string{5 * time.Minute: "00:07", time.Hour: "00:15", 24 * time.Hour: "03:00",
		7 * 24 * time.Hour: "Jan 2", 365 * 24 * time.Hour: "Jan 27"} {
		ticks := clockTicks(at(0), at(d))
		if len(ticks) < 2 || len(ticks) > 10 || ticks[0].Label != want {
			t.Errorf("%v: %v, want %s first", d, ticks, want)
		}
	}
}
