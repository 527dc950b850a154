package train

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quellhq/quell/internal/tick"
)

// Flows uses a share of a machine's network: it downloads from the machine's probe server, as neighbours' flows would share the link. They
// arrive at random. They end when this process ends, because nobody receives them any more.
type Flows struct {
	Address  string  // of the probe server
	Token    string  // that it requires
	Capacity float64 // of the machine's network, in bit/s
	Seed     uint64

	bytes atomic.Int64 // received

	mu      sync.Mutex // guards the fields below
	stop    func() error
	running bool
}

const (
	flowBytes   = 16 << 10
	flowsAtOnce = 8                // fewer than the probe server serves at once
	flowTimeout = 10 * time.Second // of one flow
	flowHead    = 250              // bytes of an answer's header and of the packets' headers, about
)

// Set sets the share of the network that the flows ask for; 0 ends them. It returns an error if flows have failed since the last call.
func (f *Flows) Set(use float64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if f.running {
		err = f.stop()
		f.running = false
	}
	if use <= 0 || err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	client := &http.Client{Timeout: flowTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: flowsAtOnce}}
	rate := use * f.Capacity / 8 / (flowBytes + flowHead) / flowsAtOnce
	var flows sync.WaitGroup
	for i := range flowsAtOnce {
		flows.Go(func() {
			if err := f.flow(ctx, client, rate, rand.New(rand.NewPCG(f.Seed, uint64(i)))); err != nil {
				cancel(err)
			}
		})
	}
	f.running = true
	f.stop = func() error {
		cancel(nil)
		flows.Wait()
		client.CloseIdleConnections()
		if cause := context.Cause(ctx); cause != context.Canceled {
			return fmt.Errorf("the network's interferer: %w", cause)
		}
		return nil
	}
	return nil
}

// flow downloads at the moments of a Poisson process.
func (f *Flows) flow(ctx context.Context, client *http.Client, rate float64, rng *rand.Rand) error {
	for due := time.Now(); ; {
		due = due.Add(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
		if late := time.Since(due); late > time.Second { // it asks for more than the link has, and must not ask for ever more
			due = due.Add(late)
		}
		if !tick.SleepUntil(ctx, due) {
			return nil
		}
		if err := f.download(ctx, client); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

func (f *Flows) download(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/probe?size=%d", f.Address, flowBytes), nil)
	if err != nil {
		return err
	}
	if f.Token != "" {
		req.Header.Set("Authorization", "Bearer "+f.Token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	f.bytes.Add(n + flowHead)
	full := resp.StatusCode == http.StatusServiceUnavailable // for a moment
	if err == nil && resp.StatusCode != http.StatusOK && !full {
		err = fmt.Errorf("the probe server answers %s", resp.Status)
	}
	return err
}

// Seconds is what the flows have carried so far, in seconds of the whole network.
func (f *Flows) Seconds() float64 { return float64(f.bytes.Load()) * 8 / f.Capacity }
