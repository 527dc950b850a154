package loadgen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quellhq/quell"
	"pgregory.net/rapid"
)

// tableI is PRIMA's Table I at a twentieth of its sizes and times.
func tableI() Video {
	return Video{Videos: 100, Zipf: 0.8, Sessions: 160, Size: 550_000, Rate: 419e3, Chunk: 500 * time.Millisecond, Prefetch: 3}
}

func programme(t interface{ Fatal(...any) }, v Video, seed uint64) *Programme {
	p, err := NewProgramme(v, seed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func drawVideo(t *rapid.T) Video {
	return Video{
		Videos: rapid.IntRange(1, 50).Draw(t, "videos"), Zipf: rapid.Float64Range(0, 2).Draw(t, "zipf"),
		Sessions: rapid.IntRange(1, 50).Draw(t, "sessions"), Size: rapid.Int64Range(1, 2_000_000).Draw(t, "size"),
		Rate: rapid.Float64Range(1e5, 1e6).Draw(t, "rate"), Chunk: time.Duration(rapid.Int64Range(1e8, 2e9).Draw(t, "chunk")),
		Prefetch: rapid.IntRange(1, 5).Draw(t, "prefetch"),
	}
}

func TestProgrammeHasItsMeanSizeAndPopularity(t *testing.T) {
	v := tableI()
	v.Videos, v.Sessions = 10, 20_000
	p := programme(t, v, 5)
	bytes, seen := 0.0, make([]float64, v.Videos+1)
	for _, l := range p.Playlists {
		bytes += float64(l.Chunks-1)*v.ChunkBytes() + l.Last
		seen[l.Video]++
	}
	if mean := bytes / float64(v.Sessions); math.Abs(mean-550_000) > 0.01 {
		t.Errorf("the mean size is %v bytes", mean)
	}
	sum := 0.0
	for rank := 1; rank <= v.Videos; rank++ {
		sum += math.Pow(float64(rank), -v.Zipf)
	}
	for rank := 1; rank <= v.Videos; rank++ {
		want := math.Pow(float64(rank), -v.Zipf) / sum
		if got := seen[rank] / float64(v.Sessions); math.Abs(got-want) > 4*math.Sqrt(want/float64(v.Sessions)) {
			t.Errorf("video %d is %.4f of the sessions, want %.4f", rank, got, want)
		}
	}
}

func TestSameSeedSameSessions(t *testing.T) {
	a, b, c := programme(t, tableI(), 1), programme(t, tableI(), 1), programme(t, tableI(), 2)
	others := 0
	for range 100 {
		x, y, z := a.Begin(), b.Begin(), c.Begin()
		if x.Playlist() != y.Playlist() || a.Playlists[x.Playlist()] != b.Playlists[y.Playlist()] {
			t.Fatal("the same seed gave other sessions")
		}
		if a.Playlists[x.Playlist()] != c.Playlists[z.Playlist()] {
			others++
		}
	}
	if others < 90 {
		t.Errorf("another seed gave %d other sessions of 100", others)
	}
}

// However long answers take, a session requests its chunks in order, each after the previous one has ended. It requests the first
// ones at once, and the others no earlier than the play rate allows.
func TestPlaybackProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := programme(t, drawVideo(t), rapid.Uint64().Draw(t, "seed"))
		play := p.Begin()
		pace := p.video.Chunk.Seconds()
		now, last, begun := 0.0, 0.0, 0.0
		for n := range p.Playlists[play.Playlist()].Chunks {
			due, ok := play.Next(now)
			if !ok || due < now {
				t.Fatalf("chunk %d at %v, %v; the one before ended at %v", n, due, ok, now)
			}
			if n < p.video.Prefetch && due != now {
				t.Fatalf("chunk %d of the first %d waits until %v", n, p.video.Prefetch, due)
			}
			if n == p.video.Prefetch {
				begun = due - pace
			}
			if n >= p.video.Prefetch && due < begun+pace*float64(n-p.video.Prefetch+1)-1e-6 {
				t.Fatalf("chunk %d at %v, ahead of its time", n, due)
			}
			if n > p.video.Prefetch && due > math.Max(now, last+pace) {
				t.Fatalf("chunk %d at %v is late: due at %v, the one before ended at %v", n, due, last+pace, now)
			}
			if play.Last() != (n == p.Playlists[play.Playlist()].Chunks-1) {
				t.Fatalf("chunk %d: Last is %v", n, play.Last())
			}
			last, now = due, due+rapid.Float64Range(0, 3).Draw(t, "answer")
		}
		if _, ok := play.Next(now); ok {
			t.Fatal("one chunk too many")
		}
	})
}

func TestVideoMistakes(t *testing.T) {
	for name, change := range map[string]func(*Video){
		"videos": func(v *Video) { v.Videos = 0 }, "zipf": func(v *Video) { v.Zipf = math.NaN() }, "sessions": func(v *Video) { v.Sessions = 0 },
		"size": func(v *Video) { v.Size = 0 }, "rate": func(v *Video) { v.Rate = math.Inf(1) },
		"chunk":    func(v *Video) { v.Chunk = time.Microsecond },
		"prefetch": func(v *Video) { v.Prefetch = 0 },
	} {
		v := tableI()
		change(&v)
		var invalid *quell.InvalidError
		if _, err := NewProgramme(v, 1); !errors.As(err, &invalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// fake answers, after a delay in synthetic time, with the requested number of bytes. It counts each session's open requests.
type fake struct {
	delay  func(n int) time.Duration
	status int

	mu     sync.Mutex
	n      int
	open   map[string]int // number of open requests, by path without its query
	most   int
	bytes  map[string]int64
	failed []string
}

func newFake(delay func(n int) time.Duration) *fake {
	return &fake{delay: delay, status: http.StatusPartialContent, open: map[string]int{}, bytes: map[string]int64{}}
}

func (f *fake) begin(r *http.Request) (bytes int64, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	bytes, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	if want := fmt.Sprintf("bytes=0-%d", bytes-1); err != nil || strings.HasPrefix(r.URL.Path, "/chunk") && r.Header.Get("Range") != want {
		f.failed = append(f.failed, fmt.Sprintf("%s with Range %q, want %q (%v)", r.URL, r.Header.Get("Range"), want, err))
	}
	f.n++
	f.open[r.URL.Path]++
	f.bytes[r.URL.Path] += bytes
	f.most = max(f.most, f.open[r.URL.Path])
	return bytes, f.delay(f.n)
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	bytes, delay := f.begin(r)
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open[r.URL.Path]--
	}()
	select {
	case <-time.After(delay):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	body := io.NopCloser(io.LimitReader(zeros{}, bytes))
	return &http.Response{StatusCode: f.status, Header: http.Header{}, ContentLength: bytes, Body: body}, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// visiting runs visits against a fake, in synthetic time.
func visiting(t *testing.T, ctx context.Context, f *fake, o Options) (Summary, []Sample) {
	t.Helper()
	var samples []Sample
	o.URL = "http://fake"
	o.Report = func(s Sample) { samples = append(samples, s) }
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.transport = f
	sum := r.Run(ctx)
	for _, bad := range f.failed {
		t.Error(bad)
	}
	return sum, samples
}

// numbered gives each visit a path of its own.
func numbered(visits Visits) Visits {
	n := 0
	return func(at time.Duration) Visit {
		n++
		return renamed{visits(at), fmt.Sprintf("/chunk/%d", n)}
	}
}

type renamed struct {
	Visit
	path string
}

func (r renamed) Next(ended time.Duration) (Request, bool) {
	q, ok := r.Visit.Next(ended)
	if ok {
		q.Path = r.path + q.Path[strings.IndexByte(q.Path, '?'):]
	}
	return q, ok
}

// However long answers take, and whether or not they fail, every session fetches exactly its bytes, one chunk at a time. Latencies count
// from the time at which a chunk was due.
func TestSessionsFetchTheirBytesExactly(t *testing.T) {
	for name, tc := range map[string]struct {
		delay  func(int) time.Duration
		status int
	}{
		"at once":             {func(int) time.Duration { return 0 }, 206},
		"with whole answers":  {func(n int) time.Duration { return time.Duration(n%7) * 10 * time.Millisecond }, 200},
		"slower than play":    {func(n int) time.Duration { return time.Duration(n%13) * 100 * time.Millisecond }, 206},
		"while the server is": {func(int) time.Duration { return time.Millisecond }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(tc.delay)
				f.status = tc.status
				p, again := programme(t, tableI(), 3), programme(t, tableI(), 3)
				sum, samples := visiting(t, t.Context(), f, Options{
					Arrivals: arrivals(t, ArrivalOptions{Process: Poisson, Rate: []Step{{0, 5}}, Duration: 20 * time.Second, Seed: 3}),
					Visit:    numbered(p.Visits("")),
				})
				chunks, total := 0, int64(0)
				for n := range sum.Visits {
					play := again.Begin()
					want := int64(0)
					for c := range again.Playlists[play.Playlist()].Chunks {
						want += again.ChunkBytes(play.Playlist(), c)
						chunks++
					}
					if got := f.bytes[fmt.Sprintf("/chunk/%d", n+1)]; got != want {
						t.Errorf("session %d fetched %d bytes of %d", n+1, got, want)
					}
					total += want
				}
				if sum.Visits < 50 || int(sum.Requests) != chunks || len(samples) != chunks || sum.Bytes != total || f.most != 1 {
					t.Errorf("%d sessions, %d requests for %d chunks, %d bytes of %d, %d of a session open at once", sum.Visits, sum.Requests, chunks,
						sum.Bytes, total, f.most)
				}
				if failed := sum.Errors == sum.Requests; failed != (tc.status == 503) || !failed && sum.Errors > 0 {
					t.Errorf("%d of %d failed", sum.Errors, sum.Requests)
				}
				for _, s := range samples {
					if s.Sent != s.Intended || s.Latency() != s.Finished-s.Sent {
						t.Fatalf("%+v: in a bubble nothing is late", s)
					}
				}
			})
		})
	}
}

func TestTheGeneratorHasTheRateAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, seconds = 4.0, 600
		f := newFake(func(int) time.Duration { return time.Millisecond })
		p := programme(t, tableI(), 8)
		sum, _ := visiting(t, t.Context(), f, Options{
			Arrivals: arrivals(t, ArrivalOptions{Process: Deterministic, Rate: []Step{{0, perSecond}}, Duration: seconds * time.Second}),
			Visit:    p.Visits(""),
		})
		if sum.Visits != perSecond*seconds-1 {
			t.Errorf("%d sessions in %d s at %v a second", sum.Visits, seconds, perSecond)
		}
		// The standard deviation of a session's size is about as large as its mean.
		want := perSecond * 550_000
		if got := float64(sum.Bytes) / seconds; math.Abs(got-want) > 4*want/math.Sqrt(perSecond*seconds) {
			t.Errorf("%.0f bytes a second, want %.0f", got, want)
		}
	})
}

func TestSessionsEndWithTheRunOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(int) time.Duration { return 20 * time.Millisecond })
		o := Options{Arrivals: every(10*time.Millisecond, 50), Visit: programme(t, tableI(), 1).Visits(""), Until: 3 * time.Second}
		sum, samples := visiting(t, t.Context(), f, o)
		for _, s := range samples {
			if s.Intended >= o.Until {
				t.Errorf("a chunk at %v, after the end", s.Intended)
			}
		}
		if sum.Abandoned > 0 || sum.Elapsed > o.Until+20*time.Millisecond {
			t.Errorf("%d chunks abandoned, over after %v", sum.Abandoned, sum.Elapsed)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1005*time.Millisecond)
		defer cancel()
		o.Arrivals, o.Until, o.Visit = every(100*time.Millisecond, 50), 0, programme(t, tableI(), 1).Visits("")
		sum, _ = visiting(t, ctx, f, o)
		if sum.Elapsed != 1005*time.Millisecond || sum.Abandoned == 0 || sum.Errors > 0 {
			t.Errorf("cancelled after 1.005 s, it took %v, abandoned %d, failed %d", sum.Elapsed, sum.Abandoned, sum.Errors)
		}
	})
}

func TestTooManySessionsAreTurnedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(int) time.Duration { return time.Millisecond })
		sum, samples := visiting(t, t.Context(), f, Options{Arrivals: every(0, 10), Visit: programme(t, tableI(), 1).Visits(""), MaxInFlight: 4})
		shed := 0
		for _, s := range samples {
			if errors.Is(s.Err, ErrShed) {
				shed++
			}
		}
		if sum.Shed != 6 || shed != 6 || sum.Visits != 4 || sum.Errors != 6 ||
			!strings.Contains(strings.Join(sum.Warnings, "\n"), "6 of 10 visits were turned away") {
			t.Errorf("%+v, %d samples shed", sum, shed)
		}
	})
}

// A server of plain files answers with a range of one file for each chunk; a file that is too small is an error.
func TestPlainFilesServeChunks(t *testing.T) {
	v := tableI()
	v.Size, v.Chunk = 20_000, 50*time.Millisecond
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "chunks"), 0o755); err != nil {
		t.Fatal(err)
	}
	for video := 1; video <= v.Videos; video++ {
		if err := os.WriteFile(filepath.Join(dir, "chunks", strconv.Itoa(video)), make([]byte, int(math.Ceil(v.ChunkBytes()))),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "small"), make([]byte, 10), 0o644); err != nil {
		t.Fatal(err)
	}
	url := serve(t, http.FileServer(http.Dir(dir)).ServeHTTP)
	o := Options{URL: url, Arrivals: every(time.Millisecond, 30), Visit: programme(t, v, 1).Visits("/chunks/{video}"), Until: 2 * time.Second}
	sum, samples := run(t, t.Context(), o)
	partial := 0
	for _, s := range samples {
		if s.Status == http.StatusPartialContent {
			partial++
		}
	}
	if sum.Errors > 0 || sum.Visits != 30 || partial != len(samples) {
		t.Errorf("%+v, %d of %d partial", sum, partial, len(samples))
	}
	o.Arrivals, o.Visit = every(0, 1), programme(t, v, 1).Visits("/small")
	if sum, samples = run(t, t.Context(), o); sum.Errors != sum.Requests || !strings.Contains(samples[0].Err.Error(), "10 bytes where") {
		t.Errorf("%+v, %v", sum, samples[0].Err)
	}
}

// Sessions reuse connections. The transport may open another one if the last one is not yet free again.
func TestSessionsKeepTheirConnections(t *testing.T) {
	var mu sync.Mutex
	from := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		from[r.RemoteAddr] = true
		mu.Unlock()
		bytes, _ := strconv.Atoi(r.URL.Query().Get("bytes"))
		_, _ = w.Write(make([]byte, bytes))
	}))
	t.Cleanup(server.Close)
	v := tableI()
	v.Chunk, v.Size = 10*time.Millisecond, 5_000
	const sessions = 5
	sum, _ := run(t, t.Context(), Options{URL: server.URL, Arrivals: every(0, sessions), Visit: programme(t, v, 1).Visits("")})
	if sum.Errors > 0 || sum.Requests < 3*sessions || 2*int64(len(from)) > sum.Requests {
		t.Errorf("%d requests over %d connections: %+v", sum.Requests, len(from), sum)
	}
}
