package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/bus/pack"
	"github.com/quellhq/quell/bus/subjects"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/internal/terminal"
)

// CommandName names a command to a controller.
type CommandName string

// The commands that a controller accepts.
const (
	Status   CommandName = "status"
	Pause    CommandName = "pause"
	Resume   CommandName = "resume"
	Override CommandName = "override"
	Clear    CommandName = "clear"
	Drain    CommandName = "drain"   // take an instance out of rotation until undrain
	Undrain  CommandName = "undrain" // put it back in rotation, whoever took it out
	Replace  CommandName = "replace" // start a new instance that takes its place

	Authority CommandName = "authority" // set how far the policy may go
	Forget    CommandName = "forget"    // drop what was learned in place
	Release   CommandName = "release"   // put everything back as it was before Quell, and change nothing until resume

	Compare CommandName = "compare" // hand control back in random turns for a time; without a time: end that

	Train CommandName = "train" // take an instance out of rotation for a training, or do a part of it; without a time: end it

	Page CommandName = "page" // ask for a log-in to the web page
)

// commandNames lists every known command.
var commandNames = []CommandName{Status, Pause, Resume, Override, Clear, Drain, Undrain, Replace, Authority, Forget, Release, Page, Compare,
	Train}

// Command is a request to a controller.
type Command struct {
	Name     CommandName `json:"name"`
	Instance string      `json:"instance,omitempty"` // override, clear, drain, undrain, replace, train
	Weight   *float64    `json:"weight,omitempty"`   // override: a fraction of traffic; clear: only if the sender set this one for a time
	ForS     float64     `json:"for_s,omitempty"`    // the seconds after which what it changes ends by itself; 0: never
	TurnS    float64     `json:"turn_s,omitempty"`   // compare: the length of a turn, in seconds
	Seed     uint64      `json:"seed,omitempty"`     // compare: of the order of the turns
	Force    bool        `json:"force,omitempty"`    // drain: the last instance; train: others' capacity is unknown
	Keep     bool        `json:"keep,omitempty"`     // replace: the old instance goes on running, out of rotation

	Training *Training `json:"training,omitempty"` // train: a part of it; nil: begin, or end

	Level quell.Authority `json:"level,omitempty"` // authority: the level; empty: what the predictions have earned
	// By names the sender. The receiver sets it from the credential and the connection; a value in the message is ignored.
	By string `json:"by,omitempty"`
	// From is the grant of that credential. The receiver sets it.
	From auth.Grant `json:"-"`
}

// For is how long what the command changes stays, 0 if it has no end.
func (c Command) For() time.Duration { return seconds(c.ForS) }

// seconds returns a time, or the nearest that there is.
func seconds(s float64) time.Duration {
	switch most := float64(math.MaxInt64); {
	case math.IsNaN(s):
		return 0
	case s*1e9 >= most:
		return math.MaxInt64
	case s*1e9 <= -most:
		return math.MinInt64
	}
	return time.Duration(s * float64(time.Second))
}

// Longest is the longest time after which something ends by itself.
const Longest = 30 * 24 * time.Hour

// checkFor returns an error if the command's time makes no sense.
func (c Command) checkFor() error {
	switch {
	case c.ForS == 0:
		return nil
	case !slices.Contains([]CommandName{Override, Drain, Authority, Compare, Train}, c.Name):
		return fmt.Errorf("%s has no end: only override, drain, authority, compare and train may have one", c.Name)
	case !(c.ForS >= 1 && c.ForS <= Longest.Seconds()):
		return fmt.Errorf("%s for %v: at least 1s and at most %d days are allowed", c.Name, seconds(c.ForS), int(Longest.Hours()/24))
	case c.Name == Compare && !(c.TurnS >= 1 && c.TurnS <= Longest.Seconds()):
		return fmt.Errorf("compare in turns of %v: at least 1s and at most %d days are allowed", seconds(c.TurnS), int(Longest.Hours()/24))
	case c.Name == Authority && c.Level == "":
		return errors.New("authority: only a level can have an end")
	}
	return nil
}

// Limits of the fields of a command, in bytes.
const (
	maxCommand  = 16 << 10
	maxBy       = auth.MaxID + 64
	maxQuestion = subjects.MaxInstance
)

// Reply is a controller's answer. If Error is not empty, the command was not carried out.
type Reply struct {
	Error   string          `json:"error,omitempty"`
	Standby bool            `json:"standby,omitempty"` // refused only because this controller does not lead: another one may carry it out
	Body    json.RawMessage `json:"body,omitempty"`
}

// Check returns an error if the command lacks something, or if something in it is out of range.
func (c Command) Check() error {
	if !slices.Contains(commandNames, c.Name) {
		return fmt.Errorf("unknown command %q", c.Name)
	}
	if slices.Contains([]CommandName{Drain, Undrain, Replace, Train}, c.Name) && c.Instance == "" {
		return fmt.Errorf("%s needs an instance", c.Name)
	}
	if len(c.Instance) > maxQuestion {
		return fmt.Errorf("the instance's name is longer than %d bytes", maxQuestion)
	}
	if c.Name == Authority && c.Level != "" && !slices.Contains(quell.Authorities, c.Level) {
		return fmt.Errorf("authority %q is unknown; known are advise, step and full", c.Level)
	}
	if c.Training != nil {
		if err := c.Training.check(); err != nil {
			return fmt.Errorf("train: %w", err)
		}
	}
	if err := c.checkFor(); err != nil || c.Name != Override {
		return err
	}
	if c.Instance == "" || c.Weight == nil {
		return errors.New("override needs an instance and a weight")
	}
	if w := *c.Weight; math.IsNaN(w) || w < 0 || w > 1 {
		return fmt.Errorf("override: weight %g is not a fraction from 0 to 1", w)
	}
	return nil
}

// Serve answers the commands for a service. Commands from one role are answered one at a time, so a flood of requests from
// one role cannot delay a pause from another. stop cancels the handler's context and waits a short time for running
// handlers.
func (c *Conn) Serve(service string, handle func(context.Context, Command) Reply) (stop func(), err error) {
	subject, err := subjects.Command(service)
	if err != nil {
		return nil, err
	}
	reply := func(ctx context.Context, m *nats.Msg) Reply { return c.reply(ctx, m, handle) }
	return serveRoles(c, "a command", reply, subject, subject)
}

// serveRoles answers requests below a subject from those roles that may send them, and requests on the other subjects from anyone. If an
// answer cannot be sent, the log names it by what.
func serveRoles(
	c *Conn, what string, reply func(context.Context, *nats.Msg) Reply, subject string, others ...string,
) (stop func(), err error) {
	for _, role := range []auth.Role{auth.Shared, auth.Operator, auth.Controller} {
		others = append(others, subject+"."+string(role)+".*")
	}
	ctx, cancel := context.WithCancel(context.Background())
	unsubscribe, err := c.subscribeAll(func(m *nats.Msg) {
		if err := c.answer(m.Reply, reply(ctx, m)); err != nil {
			c.noise.Note("answer " + what + ": " + err.Error())
		}
	}, others...)
	if err != nil {
		cancel()
		return nil, err
	}
	return func() { cancel(); unsubscribe() }, nil
}

// subscribeAll subscribes to several subjects and handles one message at a time on each.
func (c *Conn) subscribeAll(handle nats.MsgHandler, subjects ...string) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for _, subject := range subjects {
		end, err := c.subscribe(c.nc, subject, handle)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, end)
	}
	return stop, nil
}

// reply runs a command with the sender that the bus reports.
func (c *Conn) reply(ctx context.Context, m *nats.Msg, handle func(context.Context, Command) Reply) Reply {
	who, err := auth.SubjectGrant(m.Subject)
	if err != nil {
		return Reply{Error: err.Error()}
	}
	cmd, err := decodeCommand(m.Data)
	if err != nil {
		return Reply{Error: err.Error()}
	}
	if who.Role == auth.Shared && cmd.Name != Status && !c.sharedMayCommand() {
		return Reply{Error: fmt.Sprintf("%s needs an operator's credential: `quell credentials operator NAME` on the controller's machine "+
			"makes one, bus.credentials names its file. A token may only ask for the status, unless bus.token_commands is set there", cmd.Name)}
	}
	cmd.By, cmd.From = terminal.Printable(c.by(who, m.Reply), maxBy), who
	return handle(ctx, cmd)
}

func decodeCommand(data []byte) (cmd Command, err error) {
	if len(data) > maxCommand {
		return cmd, fmt.Errorf("the command has %d bytes; at most %d are allowed", len(data), maxCommand)
	}
	if err := strictjson.Decode(data, &cmd); err != nil {
		return cmd, err
	}
	return cmd, cmd.Check()
}

// sharedMayCommand returns whether clients without a credential are obeyed. On an external bus that this controller itself uses without a
// credential they are obeyed, because nobody can have a credential there.
func (c *Conn) sharedMayCommand() bool {
	return c.opts.SharedMayCommand || c.opts.Server == nil && c.grant().Role == ""
}

// by returns the sender's name: the credential's name, followed by the host if the bus is embedded and knows the host.
func (c *Conn) by(who auth.Grant, inbox string) string {
	name := who.ID
	if who.Role == auth.Shared {
		name = "shared token"
	}
	if c.opts.Server == nil {
		if c.grant().Role == "" {
			return "an unnamed user of the bus"
		}
		return name
	}
	if host := c.opts.Server.auth.Host(c.opts.Server.nats, who, inbox); host != "" {
		return name + "@" + host
	}
	return name
}

// answer sends a reply, split into several messages if it is too large for one.
func (c *Conn) answer(inbox string, r Reply) error {
	if !strings.HasPrefix(inbox, auth.Inboxes) {
		return errors.New("the command came without an inbox for the answer")
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

// Ask sends a command to the controller of a service and returns its answer. A refused command is not an error: Reply.Error is set. If ctx
// has no deadline, it waits ten seconds.
func (c *Conn) Ask(ctx context.Context, service string, cmd Command) (Reply, error) {
	if err := cmd.Check(); err != nil {
		return Reply{}, userErrorf("%w", err)
	}
	subject, err := subjects.Command(service)
	if err != nil {
		return Reply{}, err
	}
	if subject, err = c.ownSubject(subject, service, string(cmd.Name)); err != nil {
		return Reply{}, err
	}
	data, err := json.Marshal(cmd)
	if err != nil {
		return Reply{}, fmt.Errorf("encode the command: %w", err)
	}
	return c.put(ctx, service, subject, data)
}

// put sends a request to the controller of a service and returns the answer.
func (c *Conn) put(ctx context.Context, service, subject string, data []byte) (Reply, error) {
	ctx, cancel, err := c.bounded(ctx)
	if err != nil {
		return Reply{}, fmt.Errorf("%w for service %q: is `quell controller` running? (%w)", errNoController, service, err)
	}
	defer cancel()
	answer, err := c.exchange(ctx, subject, data)
	return answer, c.explainSilence(service, err)
}

// ownSubject appends the name of this side's credential to a subject. The bus accepts messages from the holder of a credential only on such
// a subject.
func (c *Conn) ownSubject(subject, service, what string) (string, error) {
	own := c.grant()
	switch {
	case own.Role == "":
		own = auth.SharedGrant()
	case own.Role != auth.Operator && own.Role != auth.Controller:
		return "", userErrorf("the credential of %s cannot ask for %s; an operator's can: see `quell credentials operator NAME`", own, what)
	case own.Role == auth.Operator && own.Service != service:
		return "", userErrorf("the credential of %s is one of service %q, not of %q", own, own.Service, service)
	}
	return subject + "." + string(own.Role) + "." + subjects.Escape(own.ID), nil
}

// errNoController says that no controller answers for a service.
var errNoController = errors.New("no controller answers")

func (c *Conn) explainSilence(service string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w for service %q on %s: is `quell controller` running?", errNoController, service, c.where)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the controller of service %q on %s did not answer in time: %w", service, c.where, err)
	}
	return fmt.Errorf("ask the controller of service %q on %s: %w", service, c.where, err)
}

// exchange sends a question and returns the answer. Several controllers may answer. If one refuses because it does not lead, exchange waits
// for the leader, which may be busy, as long as for any answer.
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
	answers := map[string]*pack.Assembler{} // by the answer's id: their parts may arrive in turns
	var refused Reply
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if refused.Standby && errors.Is(err, context.DeadlineExceeded) {
			refused.Error += ". No other controller has answered: if one leads, it is busy and may still do it"
			return refused, nil
		}
		if err != nil {
			return Reply{}, err
		}
		p, err := pack.ParsePart(m.Header.Get(pack.Header))
		if err != nil {
			return Reply{}, err
		}
		if answers[p.ID] == nil {
			answers[p.ID] = &pack.Assembler{}
		}
		packed, complete := answers[p.ID].Add(p, m.Data)
		if !complete {
			continue
		}
		r, err := c.decodeReply(packed)
		if err != nil || !r.Standby {
			return r, err
		}
		refused = r
	}
}

func (c *Conn) decodeReply(packed []byte) (r Reply, err error) {
	data, err := c.packer.Unpack(packed)
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
