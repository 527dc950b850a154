package bus

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// mostReplicas is the number of copies of a store in a cluster. With three, one server may fail and neither data nor leases are lost.
const mostReplicas = 3

// recheckReplicas is the time until a store with too few copies is checked again, because a missing server may be back.
const recheckReplicas = time.Minute

// upkeep remembers when a store was opened and whether it has all its copies.
type upkeep struct {
	opened time.Time
	whole  bool
}

// due returns whether the store must be opened again.
func (u *upkeep) due(now time.Time) bool {
	return u.opened.IsZero() || !u.whole && now.Sub(u.opened) >= recheckReplicas
}

// replicate opens a store with as many copies as the servers can hold. If an existing store has fewer copies than that, it gets more.
// create is called with the number of copies.
func (c *Conn) replicate(ctx context.Context, u *upkeep, create func(ctx context.Context, replicas int) error) error {
	wanted := c.replicas()
	for i, n := range wanted {
		err := c.insist(ctx, func(ctx context.Context) error { return create(ctx, n) })
		if tooFewServers(err) && i < len(wanted)-1 {
			continue
		}
		if err == nil {
			*u = upkeep{opened: c.opts.Now(), whole: i == 0}
		}
		return err
	}
	return nil
}

const (
	// attempt limits one request to a cluster. While servers elect a leader, a request can be lost without an answer.
	attempt = 2 * time.Second
	// attemptPause is the wait before the next attempt when no server answers for a store.
	attemptPause = 200 * time.Millisecond
)

// silence is how long a server may leave store requests unanswered before the connection moves to another server, which may reach more of
// the cluster. An election takes 4 to 9 s, so the move may be unnecessary, but it does no harm.
const silence = 6 * time.Second

// insist repeats a request to an external bus while nobody answers, until ctx ends. The request must be safe to repeat.
func (c *Conn) insist(ctx context.Context, ask func(ctx context.Context) error) error {
	if c.opts.Server != nil {
		return ask(ctx)
	}
	asked := time.Now()
	for {
		err := error(ErrNotConnected)
		if c.Connected() || !isPatient(ctx) {
			one, cancel := context.WithTimeout(ctx, attempt)
			err = ask(one)
			cancel()
		} else {
			asked = time.Now()
		}
		if ctx.Err() != nil || !silent(err) && !(isPatient(ctx) && Unavailable(err)) {
			return err
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			pause(ctx, attemptPause)
		}
		if time.Since(asked) >= silence {
			asked = time.Now()
			c.moveOn()
		}
	}
}

// moveOn connects to another server because this one does not answer.
func (c *Conn) moveOn() {
	c.mu.Lock()
	again := time.Since(c.moved) < silence
	if !again {
		c.moved = time.Now()
	}
	c.mu.Unlock()
	if again || len(c.nc.Servers()) < 2 || !c.Connected() {
		return
	}
	c.log.Info("the store does not answer here: trying another server of the bus")
	if err := c.nc.ForceReconnect(); err != nil {
		c.log.Debug("leave the server", "error", err)
	}
}

// silent returns whether a store did not answer, or gave an answer that means the same: that there is no leader at present, or that the
// same message was sent before and the servers have not yet agreed on it.
func silent(err error) bool {
	const notEnabled, notEnabledForAccount, sameInProcess = 10076, 10039, 10158
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode == sameInProcess || api.Code == 503 && !tooFewServers(err) && api.ErrorCode != notEnabled &&
			api.ErrorCode != notEnabledForAccount
	}
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionReconnecting)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// replicas returns the numbers of copies to try, highest first.
func (c *Conn) replicas() []int {
	switch {
	case c.opts.Server != nil:
		return []int{1}
	case c.opts.Replicas > 0:
		return []int{c.opts.Replicas}
	}
	return []int{mostReplicas, 1}
}

// tooFewServers returns whether the servers cannot hold that many copies: there is only one, some are away, or they
// are full.
func tooFewServers(err error) bool {
	const (
		noPeers               = 10005
		insufficientResources = 10023
		notClustered          = 10074
	)
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case noPeers, insufficientResources, notClustered:
		return true
	}
	return false
}
