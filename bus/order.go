package bus

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/subjects"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/internal/terminal"
)

// Orders tell the agent of an instance which settings to put in force, and what to report to balancers. Orders are sent on the
// instance's own subject, where only a controller may publish. The answer is sent on a subject where only that agent may publish.
type Orders struct {
	Settings []quell.Setting `json:"settings,omitempty"`
	// Report is what balancers that ask for load reports are told. It comes alone.
	Report *quell.LoadReport `json:"report,omitempty"`
	// Training asks for a part of a training. It comes alone.
	Training *Training `json:"training,omitempty"`
	// Release asks for all settings as they were before Quell; nothing else is asked for then.
	Release bool `json:"release,omitempty"`
}

// maxOrders is the limit of a message with orders, in bytes.
const maxOrders = 64 << 10

// check returns why orders are invalid or not for this instance.
func (o *Orders) check(instance string) error {
	switch n := len(o.Settings); {
	case o.Training != nil:
		if n > 0 || o.Report != nil || o.Release {
			return errors.New("an order of a training comes with nothing else")
		}
		if err := o.Training.check(); err != nil {
			return fmt.Errorf("training: %w", err)
		}
		return nil
	case o.Release && (n > 0 || o.Report != nil):
		return errors.New("a release asks for nothing else")
	case o.Report != nil && n > 0:
		return errors.New("a load report comes with no settings")
	case o.Report != nil:
		if err := o.Report.Validate(); err != nil {
			return fmt.Errorf("report: %w", err)
		}
		return nil
	case !o.Release && n == 0:
		return errors.New("orders that ask for nothing")
	}
	for i := range o.Settings {
		if err := o.Settings[i].Validate(); err != nil {
			return fmt.Errorf("settings[%d]: %w", i, err)
		}
		if o.Settings[i].Instance != instance {
			return fmt.Errorf("settings[%d]: it is for %q, and this is %q", i, o.Settings[i].Instance, instance)
		}
	}
	return nil
}

// orderSubject returns the subject on which an instance's agent receives orders, answerSubject the one on which it answers.
func orderSubject(service, instance string) (string, error) {
	return instanceSubject(service, "agent", instance, "set")
}
func answerSubject(service, instance, question string) (string, error) {
	return instanceSubject(service, "answer", instance, question)
}

func instanceSubject(service, what, instance, last string) (string, error) {
	s, err := subjects.Service(service)
	if err != nil {
		return "", err
	}
	i, err := subjects.Token("instance", instance, subjects.MaxInstance)
	return "quell." + s + "." + what + "." + i + "." + last, err
}

// OrderHandler carries out orders. What it returns is the body of the answer; nil: none.
type OrderHandler = func(context.Context, Orders) (body any, err error)

// ServeOrders carries out the orders for an instance, one at a time. An agent without its own credential receives none, because the
// bus does not let it subscribe. stop waits a short time for running handlers.
func (c *Conn) ServeOrders(service, instance string, handle OrderHandler) (stop func(), err error) {
	subject, err := orderSubject(service, instance)
	if err != nil {
		return nil, err
	}
	answers, err := answerSubject(service, instance, "")
	if err != nil {
		return nil, err
	}
	if _, shown, err := c.identity(); c.opts.Server == nil && err == nil && shown == nil {
		c.log.Info("no orders are taken: that needs a credential, see `quell credentials sensor INSTANCE`")
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	unsubscribe, err := c.subscribe(c.nc, subject, func(m *nats.Msg) {
		if err := c.answerOrders(ctx, m, instance, answers, handle); err != nil {
			c.noise.Note("answer orders: " + err.Error())
		}
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return func() { cancel(); unsubscribe() }, nil
}

func (c *Conn) answerOrders(ctx context.Context, m *nats.Msg, instance, answers string, handle OrderHandler) error {
	if !strings.HasPrefix(m.Reply, answers) {
		return errors.New("they came without a subject for the answer")
	}
	orders, err := decodeOrders(m.Data, instance)
	var body any
	if err == nil {
		body, err = handle(ctx, orders)
	}
	var reply Reply
	if err == nil && body != nil {
		reply.Body, err = json.Marshal(body)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	data, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	return c.nc.Publish(m.Reply, data)
}

func decodeOrders(data []byte, instance string) (o Orders, err error) {
	if len(data) > maxOrders {
		return o, fmt.Errorf("the orders have %d bytes; at most %d are allowed", len(data), maxOrders)
	}
	if err := strictjson.Decode(data, &o); err != nil {
		return o, err
	}
	return o, o.check(instance)
}

// Order sends orders to the agent of an instance and waits until they are carried out. It returns an error if the agent refuses them or
// does not answer before ctx ends; in the second case they may have been carried out.
func (c *Conn) Order(ctx context.Context, service, instance string, orders Orders) error {
	_, err := c.orderFor(ctx, service, instance, orders)
	return err
}

// orderFor is Order, and returns the body of the answer.
func (c *Conn) orderFor(ctx context.Context, service, instance string, orders Orders) (body json.RawMessage, err error) {
	if err := orders.check(instance); err != nil {
		return nil, err
	}
	subject, err := orderSubject(service, instance)
	if err != nil {
		return nil, err
	}
	inbox, err := answerSubject(service, instance, rand.Text())
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(orders)
	if err != nil {
		return nil, fmt.Errorf("encode orders: %w", err)
	}
	ctx, cancel, err := c.bounded(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer c.forget(sub)
	if err := c.nc.PublishRequest(subject, inbox, data); err != nil {
		return nil, err
	}
	return c.awaitAnswer(ctx, sub, instance)
}

func (c *Conn) awaitAnswer(ctx context.Context, sub *nats.Subscription, instance string) (json.RawMessage, error) {
	m, err := sub.NextMsgWithContext(ctx)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("no agent of %s hears orders: does it run, with a credential of this version?", instance)
	case err != nil:
		return nil, fmt.Errorf("the agent of %s did not answer: %w", instance, err)
	}
	var reply Reply
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return nil, fmt.Errorf("the agent of %s answered what cannot be read: %w", instance, err)
	}
	if reply.Error != "" {
		return nil, fmt.Errorf("the agent of %s: %s", instance, terminal.Printable(reply.Error, maxAnswer))
	}
	return reply.Body, nil
}

// maxAnswer limits how much of an agent's answer is shown, in bytes.
const maxAnswer = 1 << 10
