package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/quellhq/quell"
)

// CommandName is something that a controller can be asked.
type CommandName string

// What a controller can be asked.
const (
	Status   CommandName = "status"
	Pause    CommandName = "pause"
	Resume   CommandName = "resume"
	Override CommandName = "override"
	Clear    CommandName = "clear"
	Drain    CommandName = "drain"   // take an instance out of rotation until undrain
	Undrain  CommandName = "undrain" // put it back, whoever took it out
)

// CommandNames lists every known command.
var CommandNames = []CommandName{Status, Pause, Resume, Override, Clear, Drain, Undrain}

// Command asks a controller for something.
type Command struct {
	Name     CommandName `json:"name"`
	Instance string      `json:"instance,omitempty"` // override, clear, drain, undrain
	Weight   *float64    `json:"weight,omitempty"`   // override: a fraction of traffic
	Force    bool        `json:"force,omitempty"`    // drain: even the last instance in rotation
	By       string      `json:"by,omitempty"`       // who asks, for the journal
}

// Reply is what a controller answers. A non-empty Error says that the command was not carried out.
type Reply struct {
	Error string          `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

func (c Command) check() error {
	if !slices.Contains(CommandNames, c.Name) {
		return fmt.Errorf("unknown command %q", c.Name)
	}
	if (c.Name == Drain || c.Name == Undrain) && c.Instance == "" {
		return fmt.Errorf("%s needs an instance", c.Name)
	}
	if c.Name != Override {
		return nil
	}
	if c.Instance == "" || c.Weight == nil {
		return errors.New("override needs an instance and a weight")
	}
	if w := *c.Weight; math.IsNaN(w) || w < 0 || w > 1 {
		return fmt.Errorf("override: weight %g is not a fraction from 0 to 1", w)
	}
	return nil
}

// Serve answers the commands for a service, one at a time. The handler's context ends with stop, which waits for a moment
// at most for a running handler.
func (c *Conn) Serve(service string, handle func(context.Context, Command) Reply) (stop func(), err error) {
	subject, err := commandSubject(service)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	unsubscribe, err := c.subscribe(c.nc, subject, func(m *nats.Msg) {
		if err := c.answer(m.Reply, replyTo(ctx, m.Data, handle)); err != nil {
			c.noise.Note("answer a command: " + err.Error())
		}
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return func() { cancel(); unsubscribe() }, nil
}

func replyTo(ctx context.Context, data []byte, handle func(context.Context, Command) Reply) Reply {
	var cmd Command
	if err := quell.DecodeStrict(data, &cmd); err != nil {
		return Reply{Error: err.Error()}
	}
	if err := cmd.check(); err != nil {
		return Reply{Error: err.Error()}
	}
	return handle(ctx, cmd)
}

// answer sends a reply in as many messages as it needs.
func (c *Conn) answer(inbox string, r Reply) error {
	if inbox == "" {
		return errors.New("the command came without an address for the answer")
	}
	data, err := json.Marshal(r)
	if err != nil {
		data, err = json.Marshal(Reply{Error: fmt.Sprintf("the answer cannot be encoded: %v", err)})
	}
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	msgs, err := c.messages(inbox, data)
	if err != nil {
		return fmt.Errorf("pack the answer: %w", err)
	}
	for _, m := range msgs {
		if err := c.nc.PublishMsg(m); err != nil {
			return fmt.Errorf("send the answer: %w", err)
		}
	}
	return nil
}

// Ask puts a command to the controller of a service and returns its answer; a refused command is an answer, with
// Reply.Error set. Without a deadline in ctx it waits ten seconds.
func (c *Conn) Ask(ctx context.Context, service string, cmd Command) (Reply, error) {
	if err := cmd.check(); err != nil {
		return Reply{}, userErrorf("%w", err)
	}
	subject, err := commandSubject(service)
	if err != nil {
		return Reply{}, err
	}
	data, err := json.Marshal(cmd)
	if err != nil {
		return Reply{}, fmt.Errorf("encode the command: %w", err)
	}
	ctx, cancel, err := c.bounded(ctx)
	if err != nil {
		return Reply{}, fmt.Errorf("no controller answers for service %q: %w", service, err)
	}
	defer cancel()
	answer, err := c.exchange(ctx, subject, data)
	return answer, c.explainSilence(service, err)
}

func (c *Conn) explainSilence(service string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("no controller answers for service %q on %s", service, c.where)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the controller of service %q on %s did not answer in time: %w", service, c.where, err)
	}
	return fmt.Errorf("ask the controller of service %q on %s: %w", service, c.where, err)
}

func (c *Conn) exchange(ctx context.Context, subject string, data []byte) (Reply, error) {
	inbox := c.nc.NewRespInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return Reply{}, err
	}
	defer c.forget(sub)
	if err := c.nc.PublishRequest(subject, inbox, data); err != nil {
		return Reply{}, err
	}
	var whole assembler
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return Reply{}, err
		}
		p, err := parsePart(m.Header.Get(partHeader))
		if err != nil {
			return Reply{}, err
		}
		if packed, complete := whole.add(p, m.Data); complete {
			return c.decodeReply(packed)
		}
	}
}

func (c *Conn) decodeReply(packed []byte) (r Reply, err error) {
	data, err := c.packer.unpack(packed)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("decode the answer: %w", err)
	}
	return r, nil
}

func (c *Conn) forget(sub *nats.Subscription) {
	if err := sub.Unsubscribe(); err != nil {
		c.log.Debug("unsubscribe", "error", err)
	}
}
