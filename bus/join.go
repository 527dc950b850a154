package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/bus/subjects"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/internal/terminal"
)

// JoinRequest asks for the credential of an instance's sensor, or for a new one in place of one that ends.
type JoinRequest struct {
	Instance string `json:"instance"`
	Key      string `json:"key"`             // public part of the machine's key
	Proof    string `json:"proof,omitempty"` // of the platform; in place of a join token
}

// JoinAnswer is the answer to a JoinRequest. If Error is not empty, there is no claim.
type JoinAnswer struct {
	Claim     string  `json:"claim,omitempty"`
	LifetimeS float64 `json:"lifetime_s,omitempty"` // how long the claim is valid
	Error     string  `json:"error,omitempty"`
}

// Lifetime is how long the claim is valid.
func (a JoinAnswer) Lifetime() time.Duration {
	return time.Duration(a.LifetimeS * float64(time.Second))
}

// Doorkeeper answers machines that want to join. The bus has checked who asks: the holder of a join token, or the sensor of an instance.
// Who shows a proof may be anybody.
type Doorkeeper interface {
	Join(ctx context.Context, token, from string, r JoinRequest) JoinAnswer
	Prove(ctx context.Context, kind, from string, r JoinRequest) JoinAnswer
	Renew(ctx context.Context, instance string, r JoinRequest) JoinAnswer
}

const (
	maxJoin  = 1 << 10  // bytes of a request
	maxProof = 16 << 10 // and of one with a proof
	// Requests that are answered for each join token: more are dropped before they are decoded, and their senders ask again.
	joinsPerS, joinsAtOnce = 50, 500
	// Renewals for each instance.
	renewalsPerS, renewalsAtOnce = 1, 10
	// Proofs that are checked for each kind, which may be a question to the platform.
	proofsPerS, proofsAtOnce = 20, 200
)

// ServeJoins answers machines that want to join a service: those with a token, those with a proof, and renewals, each one at a time.
func (c *Conn) ServeJoins(service string, keeper Doorkeeper) (stop func(), err error) {
	s, err := subjects.Service(service)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ends := []func(){cancel}
	stop = func() {
		for _, end := range ends {
			end()
		}
	}
	for _, door := range []struct {
		role   auth.Role
		what   string
		pace   *turnstile
		decide func(id, from string, r JoinRequest) JoinAnswer
	}{
		{auth.Join, "join", newTurnstile(joinsPerS, joinsAtOnce), func(token, from string, r JoinRequest) JoinAnswer {
			return keeper.Join(ctx, token, from, r)
		}},
		{auth.Prove, "prove", newTurnstile(proofsPerS, proofsAtOnce), func(kind, from string, r JoinRequest) JoinAnswer {
			return keeper.Prove(ctx, kind, from, r)
		}},
		{auth.Sensor, "renew", newTurnstile(renewalsPerS, renewalsAtOnce), func(instance, _ string, r JoinRequest) JoinAnswer {
			if r.Instance != instance {
				return JoinAnswer{Error: fmt.Sprintf("the agent of %s asks for the credential of another instance", instance)}
			}
			return keeper.Renew(ctx, instance, r)
		}},
	} {
		end, err := c.subscribeAll(func(m *nats.Msg) {
			c.answerJoin(m, door.role, door.pace, func(id string, r JoinRequest) JoinAnswer {
				from := ""
				if door.role != auth.Sensor {
					from = c.by(auth.Grant{Role: door.role, Service: service, ID: id}, m.Reply)
				}
				return door.decide(id, from, r)
			})
		}, "quell."+s+"."+door.what+".*")
		if err != nil {
			stop()
			return nil, err
		}
		ends = append(ends, end)
	}
	return stop, nil
}

// answerJoin answers one request. The answer goes only to an inbox of the sender's own: a controller may publish everywhere, so a sender
// must not choose where.
func (c *Conn) answerJoin(m *nats.Msg, role auth.Role, t *turnstile, decide func(id string, r JoinRequest) JoinAnswer) {
	if !t.pass(m.Subject, c.opts.Now()) {
		return
	}
	err := func() error {
		id, err := subjects.Unescape(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
		if err != nil {
			return err
		}
		if !strings.HasPrefix(m.Reply, auth.Grant{Role: role, ID: id}.Inbox()+".") {
			return errors.New("a request to join came without an inbox of its sender for the answer")
		}
		var r JoinRequest
		answer := JoinAnswer{}
		most := maxJoin
		if role == auth.Prove {
			most = maxProof
		}
		if len(m.Data) > most {
			answer.Error = fmt.Sprintf("the request has %d bytes; at most %d are allowed", len(m.Data), most)
		} else if err := strictjson.Decode(m.Data, &r); err != nil {
			answer.Error = err.Error()
		} else {
			answer = decide(id, r)
		}
		data, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		return c.nc.Publish(m.Reply, data)
	}()
	if err != nil {
		c.noise.Note("answer a request to join: " + err.Error())
	}
}

// turnstile lets a number of requests in a second pass on each subject.
type turnstile struct {
	rate, most float64
	mu         sync.Mutex
	bySubject  map[string]*allowance
}

func newTurnstile(rate, most float64) *turnstile {
	return &turnstile{rate: rate, most: most, bySubject: map[string]*allowance{}}
}

func (t *turnstile) pass(subject string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.bySubject[subject]
	if own == nil {
		if len(t.bySubject) >= mostSubjects {
			clear(t.bySubject)
		}
		own = &allowance{rate: t.rate, most: t.most}
		t.bySubject[subject] = own
	}
	return own.take(1, now)
}

// AskToJoin asks for a credential with the join token, the proof or the sensor's credential that this connection presents. A refusal is an
// error that wraps ErrRefused.
func (c *Conn) AskToJoin(ctx context.Context, service string, r JoinRequest) (JoinAnswer, error) {
	s, err := subjects.Service(service)
	if err != nil {
		return JoinAnswer{}, err
	}
	own, what := c.grant(), "join"
	switch own.Role {
	case auth.Sensor:
		what = "renew"
	case auth.Prove:
		what = "prove"
	}
	data, err := json.Marshal(r)
	if err != nil {
		return JoinAnswer{}, err
	}
	ctx, cancel, err := c.bounded(ctx)
	if err != nil {
		return JoinAnswer{}, err
	}
	defer cancel()
	inbox := c.nc.NewRespInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return JoinAnswer{}, err
	}
	defer c.forget(sub)
	if err := c.nc.PublishRequest("quell."+s+"."+what+"."+subjects.Escape(own.ID), inbox, data); err != nil {
		return JoinAnswer{}, err
	}
	m, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return JoinAnswer{}, c.explainSilence(service, err)
	}
	return decodeJoinAnswer(m.Data)
}

// ErrRefused says that a controller refused a machine that wants to join.
var ErrRefused = errors.New("the controller refused")

func decodeJoinAnswer(data []byte) (a JoinAnswer, err error) {
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("decode the answer: %w", err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%w: %s", ErrRefused, terminal.Printable(a.Error, maxAnswer))
	}
	if a.Lifetime() < time.Second {
		return a, fmt.Errorf("the credential would be valid for %v", a.Lifetime())
	}
	return a, nil
}

// Refresh connects again, with the credential as it is now.
func (c *Conn) Refresh() error {
	if !c.Connected() {
		return nil // it is connecting
	}
	return c.nc.ForceReconnect()
}
