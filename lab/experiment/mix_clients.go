package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"sync"
	"time"
)

// mixCrowd are the clients of the mix.
type mixCrowd struct {
	fleet *mixFleet
	all   sync.WaitGroup
	mu    sync.Mutex
	saw   map[string]int // by kind and outcome
}

// visit sends requests of all kinds until ctx ends. The result returns what the clients saw.
func (f *mixFleet) visit(ctx context.Context) func() map[string]int {
	c := &mixCrowd{fleet: f, saw: map[string]int{}}
	c.all.Go(func() { c.ordinary(ctx) })
	for n, kind := range []struct {
		clients int
		name    string
		once    func(context.Context, *http.Client) (string, error)
		rest    time.Duration
	}{
		{6, "sticky", c.page("/"), 150 * time.Millisecond},
		{4, "cancel", c.cancel, 200 * time.Millisecond},
		{2, "limited", c.page("/limited"), 250 * time.Millisecond},
		{6, "stream", c.stream, time.Second},
		{3, "download", c.download, time.Second},
	} {
		for k := range kind.clients {
			c.all.Go(func() { c.client(ctx, kind.name, kind.once, kind.rest, uint64(100*n+k)) })
		}
	}
	return func() map[string]int {
		c.all.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		return maps.Clone(c.saw)
	}
}

func (c *mixCrowd) note(kind, outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saw[kind+" "+outcome]++
}

// client sends one request after the other. It accepts the cookie by which HAProxy sends it to the same server again; about every hundredth
// time it begins anew without.
func (c *mixCrowd) client(ctx context.Context, kind string, once func(context.Context, *http.Client) (string, error), rest time.Duration,
	seed uint64,
) {
	random := rand.New(rand.NewPCG(seed, 1))
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for ctx.Err() == nil {
		if client.Jar == nil || random.IntN(100) == 0 {
			client.Jar, _ = cookiejar.New(nil) // it fails with a list of domains only
		}
		outcome, err := once(ctx, client)
		if err != nil && ctx.Err() == nil {
			outcome = "failed"
			c.fleet.mix.Log.Debug("a request failed", "kind", kind, "error", err)
		}
		if ctx.Err() == nil {
			c.note(kind, outcome)
		}
		_ = pause(ctx, time.Duration(random.ExpFloat64()*float64(rest)))
	}
}

// ordinary sends requests at random times, at a rate that rises and falls, so that the group grows and shrinks.
func (c *mixCrowd) ordinary(ctx context.Context) {
	random := rand.New(rand.NewPCG(1, 1))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	began, due := time.Now(), time.Duration(0)
	once := c.page("/")
	for {
		rate := c.fleet.mix.Rate * (1 + 0.4*math.Sin(2*math.Pi*due.Seconds()/(2.3*c.fleet.mix.Round.Seconds())))
		due += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		if pause(ctx, time.Until(began.Add(due))) != nil {
			return
		}
		c.all.Go(func() {
			outcome, err := once(ctx, client)
			if err != nil && ctx.Err() == nil {
				outcome = "failed"
				c.fleet.mix.Log.Debug("a request failed", "kind", "ordinary", "error", err)
			}
			if ctx.Err() == nil {
				c.note("ordinary", outcome)
			}
		})
	}
}

func (c *mixCrowd) get(ctx context.Context, client *http.Client, path string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.fleet.traffic+path, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	answer, err := client.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = &cancelling{answer.Body, cancel}
	return answer, nil
}

// cancelling ends a request's context with its body.
type cancelling struct {
	io.ReadCloser
	cancel func()
}

func (b *cancelling) Close() error { defer b.cancel(); return b.ReadCloser.Close() }

// page gets a page.
func (c *mixCrowd) page(path string) func(context.Context, *http.Client) (string, error) {
	return func(ctx context.Context, client *http.Client) (string, error) {
		answer, err := c.get(ctx, client, path)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return fmt.Sprint(answer.StatusCode), err
	}
}

// cancel gives up after a moment, as a search box does when the next letter is typed.
func (c *mixCrowd) cancel(ctx context.Context, client *http.Client) (string, error) {
	ctx, stop := context.WithTimeout(ctx, 40*time.Millisecond)
	defer stop()
	outcome, err := c.page("/search")(ctx, client)
	if errors.Is(err, context.DeadlineExceeded) {
		return "cancelled", nil
	}
	return outcome, err
}

// stream listens to events for some seconds.
func (c *mixCrowd) stream(ctx context.Context, client *http.Client) (string, error) {
	answer, err := c.get(ctx, client, "/events")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	buffer := make([]byte, 256)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if _, err := answer.Body.Read(buffer); err != nil {
			return "cut", nil
		}
	}
	return fmt.Sprint(answer.StatusCode), nil
}

// download takes its time.
func (c *mixCrowd) download(ctx context.Context, client *http.Client) (string, error) {
	answer, err := c.get(ctx, client, "/download")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	for {
		n, err := io.CopyN(io.Discard, answer.Body, mixDownload/50)
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return fmt.Sprint(answer.StatusCode), nil
		case err != nil && !errors.Is(err, io.EOF):
			return "cut", nil
		}
		if pause(ctx, 200*time.Millisecond) != nil {
			return "", ctx.Err()
		}
	}
}
