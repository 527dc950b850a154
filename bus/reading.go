package bus

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell"
)

// MaxReading bounds an encoded reading, in bytes.
const MaxReading = 256 << 10

// A controller that lags behind drops what exceeds this, and the log says so.
const (
	pendingReadings     = 100_000
	pendingReadingBytes = 64 << 20
)

// stopWait bounds how long a stop function waits for a callback that is running.
const stopWait = 2 * time.Second

// PublishReading sends a reading to the controller of its service. While the bus cannot be reached it returns
// ErrNotConnected and keeps nothing: a reading that arrived late would pass for a fresh one.
func (c *Conn) PublishReading(r quell.Reading) error {
	subject, err := readingSubject(r.Service, r.Instance, r.Source)
	if err != nil {
		return err
	}
	data, err := encodeReading(&r, c.opts.Validate)
	if err != nil {
		return fmt.Errorf("reading of instance %q: %w", r.Instance, err)
	}
	if !c.Connected() {
		return fmt.Errorf("%w at %s", ErrNotConnected, c.where)
	}
	if err := c.nc.Publish(subject, data); err != nil {
		return fmt.Errorf("publish reading of instance %q: %w", r.Instance, err)
	}
	return nil
}

func encodeReading(r *quell.Reading, validate func(*quell.Reading) error) ([]byte, error) {
	if err := checkReading(r, validate); err != nil {
		return nil, err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if len(data) > MaxReading {
		return nil, fmt.Errorf("%d bytes; at most %d are allowed", len(data), MaxReading)
	}
	return data, nil
}

// SubscribeReadings calls fn with every good reading of the service and the time it was received by this side's clock,
// one at a time, and rejected with the reason for every bad one. stop waits, for a moment at most, for a
// running callback; none starts after it.
func (c *Conn) SubscribeReadings(service string, fn func(r quell.Reading, received time.Time), rejected func(error)) (stop func(), err error) {
	svc, err := serviceToken(service)
	if err != nil {
		return nil, err
	}
	return c.subscribe("quell."+svc+".reading.*.*", func(m *nats.Msg) {
		received := c.opts.Now()
		r, err := decodeReading(m.Subject, m.Data, c.opts.Validate)
		if err != nil {
			rejected(fmt.Errorf("reading on %s: %w", m.Subject, err))
			return
		}
		fn(r, received)
	})
}

func (c *Conn) subscribe(subject string, handle nats.MsgHandler) (stop func(), err error) {
	sub, err := c.nc.Subscribe(subject, handle)
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s on %s: %w", subject, c.where, err)
	}
	ended := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(ended) })
	if err := sub.SetPendingLimits(pendingReadings, pendingReadingBytes); err != nil {
		return nil, fmt.Errorf("bound the queue of %s: %w", subject, err)
	}
	c.settle(requestTimeout)
	return func() {
		if err := sub.Unsubscribe(); err != nil {
			return
		}
		c.settle(stopWait)
		select {
		case <-ended:
		case <-time.After(stopWait):
		}
	}, nil
}

// settle waits until the server knows of a subscription or its end, so that publishers on other connections find it so.
func (c *Conn) settle(within time.Duration) {
	if !c.Connected() {
		return
	}
	if err := c.nc.FlushTimeout(within); err != nil {
		c.log.Debug("wait for the server", "error", err)
	}
}

// decodeReading accepts exactly one JSON object with known fields, whose names are those of the subject.
func decodeReading(subject string, data []byte, validate func(*quell.Reading) error) (quell.Reading, error) {
	var r quell.Reading
	if len(data) > MaxReading {
		return r, fmt.Errorf("%d bytes; at most %d are allowed", len(data), MaxReading)
	}
	if err := quell.DecodeStrict(data, &r); err != nil {
		return quell.Reading{}, err
	}
	if err := checkReading(&r, validate); err != nil {
		return quell.Reading{}, err
	}
	if want, err := readingSubject(r.Service, r.Instance, r.Source); err != nil || want != subject {
		return quell.Reading{}, fmt.Errorf("it speaks of service %q, instance %q, source %q, which its subject does not",
			r.Service, r.Instance, r.Source)
	}
	return r, nil
}

func checkReading(r *quell.Reading, validate func(*quell.Reading) error) error {
	if !slices.Contains(quell.Sources, r.Source) {
		return &quell.InvalidError{Path: "source", Problem: fmt.Sprintf("unknown source %q", r.Source)}
	}
	if validate == nil {
		return nil
	}
	return validate(r)
}
