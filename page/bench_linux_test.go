package page_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/page"
)

var measure = flag.Bool("measure", false, "measure the page of 1,000 instances")

// The page of 1,000 instances: how long until its visible rows are painted, and until an update is; in milliseconds, in a real Chromium.
//
//	go test ./page -run MeasurePage -measure
func TestMeasurePage(t *testing.T) {
	if !*measure {
		t.Skip("a measurement, not a test: -measure")
	}
	need.Browser(t)
	x := newFixture(t, 1000)
	x.play(t)
	b := newBrowser(t)
	b.size(1280, 1400, false)
	var painted, updated []float64
	for range 10 {
		b.open("about:blank")
		b.open(x.http.URL)
		b.await("document.querySelectorAll('#rows tr').length == 50")
		var ms float64 // since the navigation began; the last of the largest paints has the rows
		b.eval(`new Promise((done) => new PerformanceObserver((list) => done(list.getEntries().at(-1).startTime))
			.observe({ type: "largest-contentful-paint", buffered: true }))`, &ms)
		painted = append(painted, ms)
	}
	now := x.start.Add(2 * time.Hour)
	b.must("Performance.enable", map[string]any{"timeDomain": "threadTicks"}, nil)
	before := b.busy()
	for i := range 30 {
		// From the answer of the server to the next frame: what the page itself needs.
		b.eval(fmt.Sprintf(`globalThis.seen = new Promise((done) => new MutationObserver((_, o) => { o.disconnect();
			requestAnimationFrame(() => setTimeout(() => {
				const asked = performance.getEntriesByType("resource").filter((e) => e.name.includes("/page/now")).at(-1);
				done(performance.now() - asked.responseEnd); performance.clearResourceTimings(); })); })
			.observe(document.querySelector("#rows"), { subtree: true, childList: true, characterData: true })); %d`, i), nil)
		at := now.Add(time.Duration(i) * 10 * time.Second)
		x.set(func(s *controller.Status) { *s = statusAt(x.start, at, 1000) })
		var ms float64
		b.eval("seen", &ms)
		updated = append(updated, ms)
	}
	own := 1000 * (b.busy() - before) / float64(len(updated))
	slices.Sort(painted)
	slices.Sort(updated)
	t.Logf("rows painted after %.0f ms (median of %d, at most %.0f ms)", painted[len(painted)/2], len(painted), painted[len(painted)-1])
	t.Logf("an update after %.1f ms (median of %d, at most %.1f ms)", updated[len(updated)/2], len(updated), updated[len(updated)-1])
	t.Logf("of which %.1f ms are processor time of the page's thread: script, layout, painting", own)
}

// busy is the processor time of the page's thread so far, in seconds.
func (b *browser) busy() (seconds float64) {
	var all struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	b.must("Performance.getMetrics", nil, &all)
	for _, m := range all.Metrics {
		if m.Name == "TaskDuration" {
			seconds = m.Value
		}
	}
	return seconds
}

// asViewers is the address of a page whose viewers this process plays. They have a process of their own, so that only the page is measured.
const asViewers = "QUELL_TEST_VIEWERS_OF"

// How much of a processor the page of 1,000 instances needs for ten viewers, if every second brings a decision.
func TestMeasureViewers(t *testing.T) {
	if address := os.Getenv(asViewers); address != "" {
		view(t, address)
		return
	}
	if !*measure {
		t.Skip("a measurement, not a test: -measure")
	}
	const seconds = 20
	x := newFixture(t, 1000)
	x.play(t)
	for _, count := range []string{"0", strconv.Itoa(viewers)} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMeasureViewers$", "-test.count=1", "-test.timeout=10m")
		cmd.Env = append(os.Environ(), asViewers+"="+x.http.URL, "QUELL_TEST_VIEWERS="+count)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		at := x.start.Add(2 * time.Hour)
		time.Sleep(3 * time.Second) // until all have the first answer
		before, began := used(t), time.Now()
		for i := range seconds {
			s := statusAt(x.start, at.Add(time.Duration(i)*time.Second), 1000)
			x.set(func(now *controller.Status) { *now = s })
			time.Sleep(time.Second)
		}
		t.Logf("%s viewers, a decision each second: %.1f%% of a processor", count, 100*(used(t)-before).Seconds()/time.Since(began).Seconds())
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		x.start = x.start.Add(time.Hour)
	}
}

// view plays viewers, as the page's script does, until their connections end.
func view(t *testing.T, address string) {
	count, err := strconv.Atoi(os.Getenv("QUELL_TEST_VIEWERS"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range count {
		answer, err := http.Get(address + "/page/events")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		all.Go(func() {
			var last page.Now
			after := int64(0)
			for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
				if !strings.HasPrefix(lines.Text(), "data:") {
					continue
				}
				now, err := http.Get(fmt.Sprintf("%s/page/now?limit=50&after=%d&generation=%d", address, after, last.Generation))
				if err != nil {
					return
				}
				last = page.Now{}
				err = json.NewDecoder(now.Body).Decode(&last)
				now.Body.Close()
				if err != nil {
					return
				}
				if n := len(last.Points); n > 0 {
					after = last.Points[n-1].At
				}
			}
		})
	}
	all.Wait()
}

// used is the processor time of this process so far.
func used(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
