package profile

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/quellhq/quell/internal/program"
)

// Asker sends requests of its own, and measures how long each takes. It is a Latencies.
type Asker struct {
	ask     func(context.Context) error
	timeout time.Duration
	mu      sync.Mutex
	ms      []float64
	failed  int
}

// Get asks by HTTP. An answer with a status of 400 or more is a failure.
func Get(url string, timeout time.Duration) *Asker {
	client := &http.Client{}
	return &Asker{timeout: timeout, ask: func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return err
		}
		if answer.StatusCode >= http.StatusBadRequest {
			return fmt.Errorf("status %d", answer.StatusCode)
		}
		return nil
	}}
}

// Command asks by a program, which sends one request and ends with status 0 if it was answered.
func Command(argv []string, timeout time.Duration) *Asker {
	return &Asker{timeout: timeout, ask: func(ctx context.Context) error {
		_, err := program.Run(ctx, argv, nil, program.Limits{Time: timeout, OutputMiB: 1})
		return err
	}}
}

// Try sends one request, and returns why it was not answered.
func (a *Asker) Try(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, a.timeout)
	defer stop()
	return a.ask(ctx)
}

// Run sends requests until ctx ends, this many at once. After each answer it rests for as long as the answer took.
func (a *Asker) Run(ctx context.Context, atOnce int) {
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for ctx.Err() == nil {
				a.once(ctx)
			}
		})
	}
	all.Wait()
}

func (a *Asker) once(ctx context.Context) {
	const shortest = 10 * time.Millisecond
	began := time.Now()
	err := a.Try(ctx)
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	if err != nil {
		a.failed++
	} else {
		a.ms = append(a.ms, took.Seconds()*1000)
	}
	a.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(max(took, shortest)):
	}
}

// Take implements Latencies.
func (a *Asker) Take() (ms []float64, failed int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ms, failed = a.ms, a.failed
	a.ms, a.failed = nil, 0
	return ms, failed, nil
}
