package bus

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/bus/subjects"
	"github.com/quellhq/quell/internal/strictjson"
)

// maxReading bounds an encoded reading, in bytes.
const maxReading = 256 << 10

// A controller that lags behind drops messages beyond this limit, and the log says so.
const (
	pendingReadings     = 100_000
	pendingReadingBytes = 64 << 20
)

// stopWait limits how long a stop function waits for a running callback.
const stopWait = 2 * time.Second

// PublishReading sends a reading to the controller of its service. While the bus cannot be reached, it returns ErrNotConnected and does not
// buffer the reading, because a reading that arrives late would look like a fresh one.
func (c *Conn) PublishReading(r quell.Reading) error {
	subject, err := c.publishSubject(&r)
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

// publishSubject returns the subject of a reading. If this process has a balancer's credential, the subject contains the credential's name.
func (c *Conn) publishSubject(r *quell.Reading) (string, error) {
	subject, err := subjects.Reading(r.Service, r.Instance, r.Source)
	if err != nil {
		return "", err
	}
	switch own := c.grant(); {
	case own.Role == auth.Sensor && own.ID != r.Instance:
		return "", userErrorf("the credential is that of %s, and this is a reading of %q: make one with `quell credentials sensor %s`", own,
			r.Instance, r.Instance)
	case own.Role == auth.Balancer && own.ID != r.Sender:
		return "", userErrorf("the credential is that of %s, and balancer.name is %q: make one with `quell credentials balancer %s`", own,
			r.Sender, r.Sender)
	case own.Role == auth.Balancer:
		return subject + "." + subjects.Escape(r.Sender), nil
	}
	return subject, nil
}

func encodeReading(r *quell.Reading, validate func(*quell.Reading) error) ([]byte, error) {
	if err := checkReading(r, validate); err != nil {
		return nil, err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if len(data) > maxReading {
		return nil, fmt.Errorf("%d bytes; at most %d are allowed", len(data), maxReading)
	}
	return data, nil
}

// SubscribeReadings calls in.Accept with every valid reading of the service, one at a time, with the time at which this
// process received it, and in.Reject with the reason for every invalid one. Readings use their own connection, so that
// the controller's other requests, above all its lease, never wait behind readings. stop waits a short time for a running
// callback; none starts after it.
func (c *Conn) SubscribeReadings(service string, in Intake) (stop func(), err error) {
	svc, err := subjects.Service(service)
	if err != nil {
		return nil, err
	}
	nc, err := c.open(readingsPart)
	if err != nil {
		return nil, err
	}
	allowed := newAllowances(in.Known)
	unsubscribe, err := c.subscribe(nc, "quell."+svc+".reading.>", func(m *nats.Msg) {
		received := c.opts.Now()
		if err := allowed.take(m, received); err != nil {
			in.Reject(err)
			return
		}
		r, err := decodeReading(m.Subject, m.Data, c.opts.Validate)
		if err != nil {
			in.Reject(fmt.Errorf("reading on %s: %w", m.Subject, err))
			return
		}
		in.Accept(r, received)
	})
	shut := func() {
		nc.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.links, readingsPart)
	}
	if err != nil {
		shut()
		return nil, err
	}
	return func() { unsubscribe(); shut() }, nil
}

func (c *Conn) subscribe(nc *nats.Conn, subject string, handle nats.MsgHandler) (stop func(), err error) {
	sub, err := nc.Subscribe(subject, handle)
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s on %s: %w", subject, c.where, err)
	}
	ended := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(ended) })
	if err := sub.SetPendingLimits(pendingReadings, pendingReadingBytes); err != nil {
		return nil, fmt.Errorf("bound the queue of %s: %w", subject, err)
	}
	c.settle(nc, requestTimeout)
	return func() {
		if err := sub.Unsubscribe(); err != nil {
			return
		}
		c.settle(nc, stopWait)
		select {
		case <-ended:
		case <-time.After(stopWait):
		}
	}, nil
}

// settle waits until the server has processed that a subscription began or ended. From then on, publishers on other connections are
// affected by the change.
func (c *Conn) settle(nc *nats.Conn, within time.Duration) {
	if !nc.IsConnected() {
		return
	}
	if err := nc.FlushTimeout(within); err != nil {
		c.log.Debug("wait for the server", "error", err)
	}
}

// decodeReading accepts only a single JSON object with known fields. Its service, instance and source must match the subject.
func decodeReading(subject string, data []byte, validate func(*quell.Reading) error) (quell.Reading, error) {
	var r quell.Reading
	if len(data) > maxReading {
		return r, fmt.Errorf("%d bytes; at most %d are allowed", len(data), maxReading)
	}
	if err := strictjson.Decode(data, &r); err != nil {
		return quell.Reading{}, err
	}
	if err := checkReading(&r, validate); err != nil {
		return quell.Reading{}, err
	}
	want, err := subjects.Reading(r.Service, r.Instance, r.Source)
	if err != nil || want != subject && want+"."+subjects.Escape(r.Sender) != subject {
		return quell.Reading{}, fmt.Errorf("it speaks of service %q, instance %q, source %q, sender %q, which its subject does not",
			r.Service, r.Instance, r.Source, r.Sender)
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
