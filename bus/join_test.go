package bus

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
)

// doorkeeper admits everybody as package auth decides.
type doorkeeper struct{ *auth.Admissions }

func (d doorkeeper) Join(_ context.Context, token, _ string, r JoinRequest) JoinAnswer {
	return answerOf(d.Admissions.Join(token, r.Instance, r.Key, time.Now()))
}

func (d doorkeeper) Renew(_ context.Context, instance string, r JoinRequest) JoinAnswer {
	return answerOf(d.Admissions.Renew(instance, r.Key, time.Now()))
}

func (d doorkeeper) Prove(_ context.Context, kind, _ string, r JoinRequest) JoinAnswer {
	return answerOf(d.Admissions.Prove(kind, r.Instance, r.Key, time.Now(), func(bool) (string, error) {
		if r.Proof == "sound" {
			return "", nil
		}
		return "", errors.New("the proof is not sound")
	}))
}

func answerOf(a auth.Admitted, err error) JoinAnswer {
	if err != nil {
		return JoinAnswer{Error: err.Error()}
	}
	return JoinAnswer{Claim: a.Claim, LifetimeS: a.Lifetime.Seconds()}
}

// joinable is a service under control with a join token, and a machine that joined with it as i1.
func joinable(t *testing.T) (c *controlled, token []byte, h auth.Holding) {
	t.Helper()
	c = underControl(t, ServerOptions{}, Options{})
	stop, err := c.conn.ServeJoins("video", doorkeeper{auth.NewAdmissions(c.ring, "video")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	if token, err = c.ring.Tokens().Make(auth.Token{Name: "web", Service: "video", LifetimeS: 60}, time.Hour); err != nil {
		t.Fatal(err)
	}
	h = auth.Holding{Path: t.TempDir() + "/own.creds"}
	if err := joinAs(t, c, token, h, "i1"); err != nil {
		t.Fatal(err)
	}
	return c, token, h
}

// joinAs asks with a credential, and stores the answer.
func joinAs(t *testing.T, c *controlled, with []byte, h auth.Holding, instance string) error {
	t.Helper()
	key, err := h.Key()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := Connect(showing(c, with))
	if err != nil {
		return err
	}
	defer conn.Close()
	a, err := conn.AskToJoin(t.Context(), "video", JoinRequest{Instance: instance, Key: key})
	if err != nil {
		return err
	}
	return h.Store(a.Claim, auth.Grant{Role: auth.Sensor, Service: "video", ID: instance})
}

func showing(c *controlled, text []byte) Options {
	return Options{URL: c.server.URL(), Identify: func() (auth.Identity, error) { return auth.Identity{Credential: text}, nil }}
}

// TestWhatAStolenJoinTokenCanDo tries everything else with it: reading and sending readings, commands, orders, the stores, others' answers.
func TestWhatAStolenJoinTokenCanDo(t *testing.T) {
	c, token, _ := joinable(t)
	thief, denied := raw(t, c.server.URL(), token)
	heard := make(chan *nats.Msg, 100)
	for _, subject := range []string{">", "quell.>", "quell.video.reading.>", "quell.video.join.*", "quell.video.renew.*",
		"quell.video.agent.i1.>",
		"_INBOX.>", "_INBOX.sensor.i1.>", "$JS.API.>", "quell.video.journal.plans"} {
		if _, err := thief.ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
		eventually(t, "listening at "+subject+" is denied", func() bool { return denied.has(subject) })
	}
	for _, subject := range []string{"quell.video.reading.agent.i1", "quell.video.command.operator.web", "quell.video.command",
		"quell.video.renew.i1",
		"quell.video.join.other", "quell.video.agent.i1.set", "quell.video.answer.i1.x", "quell.shop.join.web", "$JS.API.STREAM.NAMES",
		"_INBOX.sensor.i1.x", "_INBOX.join.web.x"} {
		if err := thief.PublishRequest(subject, thief.NewRespInbox(), []byte(`{"name":"pause"}`)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "publishing to "+subject+" is denied", func() bool { return denied.has(subject) })
	}
	// An answer must not go where the sender may not publish.
	victim, _ := raw(t, c.server.URL(), mustIssue(t, c, auth.Operator, "anna"))
	sub, err := victim.SubscribeSync("_INBOX.operator.anna.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := thief.PublishRequest("quell.video.join.web", "_INBOX.operator.anna.x", []byte(`{"instance":"i2","key":"x"}`)); err != nil {
		t.Fatal(err)
	}
	h := auth.Holding{Path: t.TempDir() + "/taken.creds"}
	if err := joinAs(t, c, token, h, "i1"); !errors.Is(err, ErrRefused) { // answered after the request above
		t.Errorf("taking a name: %v", err)
	}
	if m, err := sub.NextMsg(time.Millisecond); err == nil {
		t.Errorf("an operator got %q", m.Data)
	}
	if len(heard)+len(c.readings)+len(c.commands) > 0 {
		t.Errorf("heard %d messages; %d readings and %d commands arrived", len(heard), len(c.readings), len(c.commands))
	}
}

func mustIssue(t *testing.T, c *controlled, role auth.Role, id string) []byte {
	t.Helper()
	text, err := c.ring.Issue(auth.Grant{Role: role, Service: "video", ID: id}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestAJoinedSensor sends readings of its own instance, renews its credential, and gets nobody else's.
func TestAJoinedSensor(t *testing.T) {
	c, _, h := joinable(t)
	read := func() []byte {
		text, err := os.ReadFile(h.Path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := read()
	conn := connect(t, showing(c, first))
	if err := conn.PublishReading(quell.Reading{Service: "video", Instance: "i1", Source: quell.FromAgent}); err != nil {
		t.Fatal(err)
	}
	if r := receive(t, c.readings); r.Instance != "i1" {
		t.Errorf("%+v", r)
	}
	if err := joinAs(t, c, first, h, "i2"); !errors.Is(err, ErrRefused) {
		t.Errorf("another instance's credential: %v", err)
	}
	if err := joinAs(t, c, first, h, "i1"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Refresh(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "connected again", conn.Connected)
	if err := c.ring.Revoke(auth.Grant{Role: auth.Sensor, Service: "video", ID: "i1"}); err != nil {
		t.Fatal(err)
	}
	_, err := Connect(showing(c, read()))
	wantUserError(t, err, "refused the credential of sensor i1")
}

// TestAFloodOfJoins sends 10,000 requests with one token. Renewals, commands and another token are answered meanwhile.
func TestAFloodOfJoins(t *testing.T) {
	c, token, h := joinable(t)
	other, err := c.ring.Tokens().Make(auth.Token{Name: "other", Service: "video", LifetimeS: 60}, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(h.Path)
	if err != nil {
		t.Fatal(err)
	}
	thief, _ := raw(t, c.server.URL(), token)
	const requests = 10_000
	for range requests {
		if err := thief.PublishRequest("quell.video.join.web", thief.NewRespInbox(), []byte(`{"instance":"i1","key":"stolen"}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := joinAs(t, c, own, h, "i1"); err != nil {
		t.Errorf("renewing: %v", err)
	}
	if err := joinAs(t, c, other, auth.Holding{Path: t.TempDir() + "/i2.creds"}, "i2"); err != nil {
		t.Errorf("another token: %v", err)
	}
	if _, err := connect(t, as(c.server, c.ring, auth.Operator, "anna")).Ask(t.Context(), "video", Command{Name: Status}); err != nil {
		t.Errorf("a command: %v", err)
	}
	c.server.auth.Count(c.server.nats, time.Second)
	eventually(t, "the flooding connection is closed", thief.IsClosed)
}

func TestTurnstile(t *testing.T) {
	now := time.Now()
	s, passed := newTurnstile(joinsPerS, joinsAtOnce), 0
	for range 10_000 {
		if s.pass("quell.video.join.web", now) {
			passed++
		}
	}
	if passed != joinsAtOnce || !s.pass("quell.video.join.other", now) {
		t.Errorf("%d requests passed at once", passed)
	}
	if !s.pass("quell.video.join.web", now.Add(time.Second)) {
		t.Error("nothing passes later")
	}
}

// TestWhatAProofCanDo connects without a credential, to show a proof, and tries everything else.
func TestWhatAProofCanDo(t *testing.T) {
	c, _, _ := joinable(t)
	prover := Options{URL: c.server.URL(), Identify: func() (auth.Identity, error) {
		return auth.Identity{Proves: auth.Grant{Role: auth.Prove, Service: "video", ID: "aws"}}, nil
	}}
	if _, err := Connect(prover); err == nil || !strings.Contains(err.Error(), "accepts no proof of kind aws for the service video") {
		t.Fatalf("before anything accepts proofs: %v", err)
	}
	c.server.AcceptProofs("video", "aws")
	ask := func(instance, proof string, h auth.Holding) error {
		conn, err := Connect(prover)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		key, err := h.Key()
		if err != nil {
			t.Fatal(err)
		}
		a, err := conn.AskToJoin(t.Context(), "video", JoinRequest{Instance: instance, Key: key, Proof: proof})
		if err == nil {
			err = h.Store(a.Claim, auth.Grant{Role: auth.Sensor, Service: "video", ID: instance})
		}
		return err
	}
	own, other := auth.Holding{Path: t.TempDir() + "/own"}, auth.Holding{Path: t.TempDir() + "/other"}
	for _, tc := range []struct {
		instance, proof string
		by              auth.Holding
		refusal         string
	}{
		{"i7", "false", own, "not sound"},
		{"i7", "sound", own, ""},
		{"i7", "sound", own, ""},
		{"i7", "sound", other, "has joined already, with another key"},
		{"i1", "sound", other, "has joined already, with another key"}, // with a join token
		{"i8", strings.Repeat("x", 20<<10), other, "at most 16384 are allowed"},
	} {
		err := ask(tc.instance, tc.proof, tc.by)
		if tc.refusal == "" && err != nil || tc.refusal != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tc.refusal)) {
			t.Errorf("%s with a proof of %d bytes: %v, wanted %q", tc.instance, len(tc.proof), err, tc.refusal)
		}
	}
	text, err := os.ReadFile(own.Path)
	if err != nil {
		t.Fatal(err)
	}
	sensor, err := Connect(showing(c, text))
	if err != nil {
		t.Fatal(err)
	}
	sensor.Close()

	// Nothing else is allowed, not even with another service or kind in the name.
	for _, name := range []string{"prove/shop/aws", "prove/video/kubernetes", "sensor/video/i7", "controller/video/controller", "prove"} {
		if nc, err := nats.Connect(c.server.URL(), nats.UserInfo(name, "")); err == nil {
			nc.Close()
			t.Errorf("%s was let in", name)
		}
	}
	denied := make(chan error, 100)
	nc, err := nats.Connect(c.server.URL(), nats.UserInfo("prove/video/aws", ""),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	tried := 0
	for _, subject := range []string{">", "quell.>", "quell.video.prove.*", "quell.video.agent.i7.>", "_INBOX.>", "_INBOX.sensor.i7.>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		tried++
	}
	for _, subject := range []string{"quell.video.reading.agent.i7", "quell.video.join.web", "quell.video.renew.i7",
		"quell.video.command.operator.x", "quell.shop.prove.aws", "quell.video.prove.kubernetes", "_INBOX.prove.aws.x"} {
		if err := nc.Publish(subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		tried++
	}
	for range tried {
		select {
		case err := <-denied:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("something was allowed")
		}
	}
}
