package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
)

// raw connects to a bus with NATS's own client and a credential, as an attacker would.
func raw(t testing.TB, url string, text []byte, more ...nats.Option) (*nats.Conn, *denials) {
	t.Helper()
	denied := &denials{}
	options := append([]nats.Option{nats.ErrorHandler(denied.add), nats.NoReconnect()}, more...)
	if text != nil {
		c, err := auth.Identity{Credential: text}.Parse()
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, nats.UserInfo(c.Claim, ""), nats.UserJWT(func() (string, error) { return c.Claim, nil }, c.Sign),
			nats.CustomInboxPrefix(c.Grant.Inbox()))
	}
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, denied
}

// denials are the subjects that the server refused to a connection.
type denials struct {
	mu  sync.Mutex
	all []string
}

func (d *denials) add(_ *nats.Conn, _ *nats.Subscription, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, err.Error())
}

func (d *denials) has(subject string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, text := range d.all {
		if strings.Contains(strings.ToLower(text), "permissions violation") && strings.Contains(text, `"`+subject) {
			return true
		}
	}
	return false
}

// wantRefused publishes to each of the subjects and waits until the server has refused it. The map's keys describe the attacks.
func wantRefused(t *testing.T, nc *nats.Conn, denied *denials, subjects map[string]string) {
	t.Helper()
	for what, subject := range subjects {
		t.Run(what, func(t *testing.T) {
			if err := nc.PublishRequest(subject, nc.NewRespInbox(), []byte(`{"name":"pause","by":"root"}`)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "refused", func() bool { return denied.has(subject) })
		})
	}
}

// controlled is a bus with a controller at work: readings, commands, a journal, a state and a lease.
type controlled struct {
	server   *Server
	ring     auth.Keyring
	dir      string
	conn     *Conn
	lease    *Lease
	readings chan quell.Reading
	commands chan Command
}

func underControl(t *testing.T, opts ServerOptions, o Options) *controlled {
	t.Helper()
	opts.StoreDir = t.TempDir()
	s, ring := guarded(t, opts)
	o.Server = s
	c := &controlled{server: s, ring: ring, dir: opts.StoreDir, conn: connect(t, o), readings: make(chan quell.Reading, 1000),
		commands: make(chan Command, 1000)}
	stop, err := c.conn.SubscribeReadings("video", Intake{
		Accept: func(r quell.Reading, _ time.Time) { c.readings <- r }, Reject: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	unserve, err := c.conn.Serve("video", func(_ context.Context, cmd Command) Reply {
		c.commands <- cmd
		return Reply{Body: json.RawMessage(`{"done":"` + cmd.By + `"}`)}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unserve)
	appendEvents(t, journal(t, c.conn, JournalOptions{}), 3)
	if err := state(t, c.conn).Put(t.Context(), "memory", []byte("paused")); err != nil {
		t.Fatal(err)
	}
	if c.lease, err = c.conn.Lease(t.Context(), "video", "h", time.Minute); err != nil {
		t.Fatal(err)
	}
	return c
}

// wantUntouched checks that the attack changed nothing of the controller's.
func (c *controlled) wantUntouched(t *testing.T) {
	t.Helper()
	if err := c.conn.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(c.readings) > 0 || len(c.commands) > 0 {
		t.Errorf("%d readings and %d commands arrived", len(c.readings), len(c.commands))
	}
	if err := c.lease.Renew(t.Context()); err != nil {
		t.Errorf("the lease: %v", err)
	}
	if got := texts(t, journal(t, c.conn, JournalOptions{})); len(got) != 3 {
		t.Errorf("the journal holds %d entries, want 3", len(got))
	}
	if v, err := state(t, c.conn).Get(t.Context(), "memory"); err != nil || string(v) != "paused" {
		t.Errorf("the state is %q, %v", v, err)
	}
}

// attempts returns the publishes that are tried with each stolen credential.
func attempts(own string) map[string]string {
	return map[string]string{
		"pause":                            "quell.video.command.sensor." + own,
		"pause as before roles":            "quell.video.command",
		"pause as an operator":             "quell.video.command.operator.operator",
		"pause as a token":                 "quell.video.command.token.shared",
		"another instance's reading":       "quell.video.reading.agent.i2",
		"a balancer's reading":             "quell.video.reading.balancer." + own,
		"a balancer's in its name":         "quell.video.reading.balancer." + own + ".balancer",
		"a prober's reading":               "quell.video.reading.prober." + own,
		"another service's reading":        "quell.audio.reading.agent." + own,
		"a journal entry":                  "quell.video.journal.plans",
		"a lease":                          "$KV.quell_lease.video",
		"a lease of an embedded bus":       "quell.video.lease",
		"a state":                          "$KV.quell_state_video.memory",
		"the journal's end":                "$JS.API.STREAM.DELETE.quell_plans_video",
		"the lease's end":                  "$JS.API.STREAM.DELETE.KV_quell_lease",
		"an empty journal":                 "$JS.API.STREAM.PURGE.quell_plans_video",
		"a message's end":                  "$JS.API.STREAM.MSG.DELETE.quell_plans_video",
		"a reader of the journal":          "$JS.API.CONSUMER.CREATE.quell_plans_video",
		"a stream of its own on the disk":  "$JS.API.STREAM.CREATE.mine",
		"another instance's commands":      "quell.video.agent.i2.limit",
		"another instance's answer":        "quell.video.answer.i2.x",
		"an answer in the controller name": "_INBOX.operator.operator.x.y",
		"the system's account":             "$SYS.REQ.SERVER.PING",
	}
}

func TestWhatASensorCannotDo(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	text, err := c.ring.Issue(auth.Grant{Role: auth.Sensor, Service: "video", ID: "i1"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	nc, denied := raw(t, c.server.URL(), text)
	wantRefused(t, nc, denied, attempts("i1"))
	for _, subject := range []string{">", "quell.>", "quell.video.reading.>", "quell.video.agent.i2.>", "_INBOX.>", "_INBOX.*.*.*.*", "$SYS.>",
		"$KV.>", "quell.video.command.>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		eventually(t, "no ear for "+subject, func() bool { return denied.has(subject) })
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"delete": js.DeleteStream(t.Context(), "quell_plans_video"),
		"fill":   second(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "mine", Subjects: []string{"mine.>"}})),
	} {
		if err == nil {
			t.Errorf("JetStream let a sensor %s", what)
		}
	}
	c.wantUntouched(t)

	own := connect(t, Options{URL: c.server.URL(), Identify: func() (auth.Identity, error) { return auth.Identity{Credential: text}, nil }})
	_, err = own.Ask(t.Context(), "video", Command{Name: Pause})
	wantUserError(t, err, "sensor i1", "operator")
	if err := own.PublishReading(reading("i2")); err == nil {
		t.Error("a reading of another instance was published")
	}
	if err := own.PublishReading(reading("i1")); err != nil {
		t.Fatal(err)
	}
	if r := receive(t, c.readings); r.Instance != "i1" {
		t.Errorf("got a reading of %s", r.Instance)
	}
}

func second[T any](_ T, err error) error { return err }

func TestWhatABalancerCannotDo(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	text, err := c.ring.Issue(auth.Grant{Role: auth.Balancer, Service: "video", ID: "east"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	nc, denied := raw(t, c.server.URL(), text)
	wantRefused(t, nc, denied, attempts("i1"))
	for _, subject := range []string{"quell.video.reading.agent.i1.east", "quell.video.reading.balancer.i1.west"} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, subject+" refused", func() bool { return denied.has(subject) })
	}
	c.wantUntouched(t)
	own := connect(t, as(c.server, c.ring, auth.Balancer, "east"))
	r := reading("i1")
	r.Source, r.Sender = quell.FromBalancer, "west"
	wantWords(t, own.PublishReading(r), "east", "west")
	r.Sender = "east"
	if err := own.PublishReading(r); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, c.readings); got.Sender != "east" {
		t.Errorf("got a reading of %q", got.Sender)
	}
}

// Operators may send requests to the controller. They cannot access the bus's stores directly.
func TestWhatAnOperatorCannotDo(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	text, err := c.ring.Issue(auth.Grant{Role: auth.Operator, Service: "video", ID: "anna"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	nc, denied := raw(t, c.server.URL(), text)
	wantRefused(t, nc, denied, attempts("i1"))
	c.wantUntouched(t)
	// The sender's name that a client writes into a command is ignored, and answers are sent only to inboxes.
	if err := nc.PublishRequest("quell.video.command.operator.anna", "quell.video.reading.agent.i1",
		[]byte(`{"name":"pause","by":"root"}`)); err != nil {
		t.Fatal(err)
	}
	if cmd := receive(t, c.commands); !strings.HasPrefix(cmd.By, "anna") {
		t.Errorf("by %q", cmd.By)
	}
	reply, err := connect(t, as(c.server, c.ring, auth.Operator, "anna")).Ask(t.Context(), "video", Command{Name: Pause, By: "root\x1b[2J"})
	if want := `{"done":"anna@` + auth.HostOf("127.0.0.1") + `"}`; err != nil || string(reply.Body) != want {
		t.Errorf("%s %s, %v; want %s", reply.Body, reply.Error, err, want)
	}
	if len(c.readings) > 0 {
		t.Error("an answer was taken for a reading")
	}
}

func TestWhoShowsNothingCanDoNothing(t *testing.T) {
	c := underControl(t, ServerOptions{Token: "right"}, Options{})
	good, err := c.ring.Issue(auth.Grant{Role: auth.Operator, Service: "video", ID: "anna"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := auth.Identity{Credential: good}.Parse()
	if err != nil {
		t.Fatal(err)
	}
	other := auth.Keyring{Dir: t.TempDir()}
	if err := other.Make(); err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Issue(auth.Grant{Role: auth.Controller, Service: "video", ID: "x"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := auth.Identity{Credential: foreign}.Parse()
	if err != nil {
		t.Fatal(err)
	}
	show := func(claim string, sign func([]byte) ([]byte, error)) []nats.Option {
		return []nats.Option{nats.UserInfo(claim, ""), nats.UserJWT(func() (string, error) { return claim, nil }, sign)}
	}
	changed := func(claim string) string { // one bit of what was signed
		parts := strings.Split(claim, ".")
		parts[1] = strings.Replace(parts[1], parts[1][20:21], string(parts[1][20]^1), 1)
		return strings.Join(parts, ".")
	}
	for who, options := range map[string][]nats.Option{
		"nobody":                          nil,
		"a wrong token":                   {nats.Token("wrong")},
		"an empty token":                  {nats.Token("")},
		"a name and a password":           {nats.UserInfo("controller controller", "x")},
		"the name of a grant":             {nats.UserInfo("operator anna", "")},
		"another controller's credential": show(forged.Claim, forged.Sign),
		"a claim whose key it lacks":      show(shown.Claim, forged.Sign),
		"a claim without a signature":     {nats.UserInfo(shown.Claim, "")},
		"a claim that was changed":        show(changed(shown.Claim), shown.Sign),
		"something that is not a claim":   show("a.b.c", shown.Sign),
		"a signature of something else":   show(shown.Claim, func([]byte) ([]byte, error) { return shown.Sign([]byte("x")) }),
		"a claim and an unreadable proof": show(shown.Claim, func([]byte) ([]byte, error) { return []byte("x"), nil }),
	} {
		nc, err := nats.Connect(c.server.URL(), append(options, nats.NoReconnect())...)
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v, want a refusal", who, err)
			if err == nil {
				nc.Close()
			}
		}
	}
	c.wantUntouched(t)
}

// A shared token, which was used before roles existed, allows sending readings and reading the status, but no commands.
func TestWhatASharedTokenCanDo(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		t.Run(fmt.Sprint("commands ", allowed), func(t *testing.T) {
			c := underControl(t, ServerOptions{Token: "right"}, Options{SharedMayCommand: allowed})
			nc, denied := raw(t, c.server.URL(), nil, nats.Token("right"))
			for _, subject := range []string{"$JS.API.STREAM.DELETE.quell_plans_video", "$KV.quell_lease.video", "quell.video.command.operator.anna",
				"_INBOX.operator.anna.x"} {
				if err := nc.Publish(subject, nil); err != nil {
					t.Fatal(err)
				}
				eventually(t, subject+" refused", func() bool { return denied.has(subject) })
			}
			c.wantUntouched(t)
			shared := connect(t, Options{URL: c.server.URL(), Token: "right"})
			if err := shared.PublishReading(reading("i2")); err != nil {
				t.Fatal(err)
			}
			receive(t, c.readings)
			by := `{"done":"shared token@` + auth.HostOf("127.0.0.1") + `"}`
			if r, err := shared.Ask(t.Context(), "video", Command{Name: Status}); err != nil || string(r.Body) != by {
				t.Errorf("status: %+v, %v", r, err)
			}
			r, err := shared.Ask(t.Context(), "video", Command{Name: Pause})
			if refused := strings.Contains(r.Error, "operator's credential"); err != nil || refused == allowed {
				t.Errorf("pause: %+v, %v", r, err)
			}
			// Versions of the command line from before roles existed send their requests on another subject.
			m, err := nc.Request("quell.video.command", []byte(`{"name":"pause","by":"root"}`), patience)
			if err != nil {
				t.Fatal(err)
			}
			old, err := shared.decodeReply(m.Data)
			if refused := strings.Contains(old.Error, "operator's credential"); err != nil || refused == allowed {
				t.Errorf("pause as before roles: %+v, %v", old, err)
			}
		})
	}
}

// A sender that floods the bus is disconnected. Other connections are not affected.
func TestAFloodIsCutOff(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	text, err := c.ring.Issue(auth.Grant{Role: auth.Sensor, Service: "video", ID: "i1"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	g := c.server.auth
	nc, _ := raw(t, c.server.URL(), text)
	g.Count(c.server.nats, time.Second)
	for range 5000 {
		if err := nc.Publish("quell.video.agent.i1", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	g.Count(c.server.nats, time.Second)
	eventually(t, "cut off", func() bool { return !nc.IsConnected() })
	_, err = Connect(Options{URL: c.server.URL(), Identify: func() (auth.Identity, error) { return auth.Identity{Credential: text}, nil }})
	wantUserError(t, err, "refused the credential")
	connect(t, as(c.server, c.ring, auth.Sensor, "i2"))
}

func TestACredentialHasAFewConnections(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	most := auth.Sensor.MaxConnections()
	for range most {
		connect(t, as(s, ring, auth.Sensor, "i1"))
	}
	_, err := Connect(as(s, ring, auth.Sensor, "i1"))
	wantUserError(t, err, "refused the credential")
	connect(t, as(s, ring, auth.Sensor, "i2"))
}
