package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/quellhq/quell"
)

// raw joins a bus with NATS's own client, as an attacker would, showing a credential.
func raw(t testing.TB, url string, text []byte, more ...nats.Option) (*nats.Conn, *denials) {
	t.Helper()
	denied := &denials{}
	options := append([]nats.Option{nats.ErrorHandler(denied.add), nats.NoReconnect()}, more...)
	if text != nil {
		c, err := parseCredential(text)
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, nats.UserInfo(c.claim, ""), nats.UserJWT(func() (string, error) { return c.claim, nil }, c.key.Sign),
			nats.CustomInboxPrefix(c.grant.inbox()))
	}
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, denied
}

// denials are what the server refused a connection.
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

// wantRefused publishes to each of the subjects, which are named by what is attempted, and waits until the server has refused it.
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
	ring     Keyring
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
	c := &controlled{server: s, ring: ring, dir: opts.StoreDir, conn: connect(t, o), readings: make(chan quell.Reading, 1000), commands: make(chan Command, 1000)}
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

// wantUntouched says that nothing of the controller's was reached.
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

// attempts is what a stolen credential is tried on.
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
		"an answer in the controller name": "_INBOX.operator.operator.x.y",
		"the system's account":             "$SYS.REQ.SERVER.PING",
	}
}

func TestWhatASensorCannotDo(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	text, err := c.ring.Issue(Grant{Sensor, "video", "i1"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	nc, denied := raw(t, c.server.URL(), text)
	wantRefused(t, nc, denied, attempts("i1"))
	for _, subject := range []string{">", "quell.>", "quell.video.reading.>", "quell.video.agent.i2.>", "_INBOX.>", "_INBOX.*.*.*.*", "$SYS.>", "$KV.>", "quell.video.command.>"} {
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
		"delete": js.DeleteStream(t.Context(), "quell_plans_video"), "fill": second(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "mine", Subjects: []string{"mine.>"}})),
	} {
		if err == nil {
			t.Errorf("JetStream let a sensor %s", what)
		}
	}
	c.wantUntouched(t)

	own := connect(t, Options{URL: c.server.URL(), Identify: func() (Identity, error) { return Identity{Credential: text}, nil }})
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
	text, err := c.ring.Issue(Grant{Balancer, "video", "east"}, 0)
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
	own := connect(t, as(c.server, c.ring, Balancer, "east"))
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

// An operator asks; the stores themselves are out of reach.
func TestWhatAnOperatorCannotDo(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	text, err := c.ring.Issue(Grant{Operator, "video", "anna"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	nc, denied := raw(t, c.server.URL(), text)
	wantRefused(t, nc, denied, attempts("i1"))
	c.wantUntouched(t)
	// What the sender says of itself does not count, and no answer goes elsewhere than to an inbox.
	if err := nc.PublishRequest("quell.video.command.operator.anna", "quell.video.reading.agent.i1", []byte(`{"name":"pause","by":"root"}`)); err != nil {
		t.Fatal(err)
	}
	if cmd := receive(t, c.commands); !strings.HasPrefix(cmd.By, "anna") {
		t.Errorf("by %q", cmd.By)
	}
	reply, err := connect(t, as(c.server, c.ring, Operator, "anna")).Ask(t.Context(), "video", Command{Name: Pause, By: "root\x1b[2J"})
	if want := `{"done":"anna@` + hostOf("127.0.0.1") + `"}`; err != nil || string(reply.Body) != want {
		t.Errorf("%s %s, %v; want %s", reply.Body, reply.Error, err, want)
	}
	if len(c.readings) > 0 {
		t.Error("an answer was taken for a reading")
	}
}

func TestWhoShowsNothingCanDoNothing(t *testing.T) {
	c := underControl(t, ServerOptions{Token: "right"}, Options{})
	good, err := c.ring.Issue(Grant{Operator, "video", "anna"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := parseCredential(good)
	if err != nil {
		t.Fatal(err)
	}
	other := Keyring{t.TempDir()}
	if err := other.Make(); err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Issue(Grant{Controller, "video", "x"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := parseCredential(foreign)
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
		"another controller's credential": show(forged.claim, forged.key.Sign),
		"a claim whose key it lacks":      show(shown.claim, forged.key.Sign),
		"a claim without a signature":     {nats.UserInfo(shown.claim, "")},
		"a claim that was changed":        show(changed(shown.claim), shown.key.Sign),
		"something that is not a claim":   show("a.b.c", shown.key.Sign),
		"a signature of something else":   show(shown.claim, func([]byte) ([]byte, error) { return shown.key.Sign([]byte("x")) }),
		"a claim and an unreadable proof": show(shown.claim, func([]byte) ([]byte, error) { return []byte("x"), nil }),
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

// A token that every process shows, as before there were roles, is enough to report and to look, not to command.
func TestWhatASharedTokenCanDo(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		t.Run(fmt.Sprint("commands ", allowed), func(t *testing.T) {
			c := underControl(t, ServerOptions{Token: "right"}, Options{SharedMayCommand: allowed})
			nc, denied := raw(t, c.server.URL(), nil, nats.Token("right"))
			for _, subject := range []string{"$JS.API.STREAM.DELETE.quell_plans_video", "$KV.quell_lease.video", "quell.video.command.operator.anna", "_INBOX.operator.anna.x"} {
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
			by := `{"done":"shared token@` + hostOf("127.0.0.1") + `"}`
			if r, err := shared.Ask(t.Context(), "video", Command{Name: Status}); err != nil || string(r.Body) != by {
				t.Errorf("status: %+v, %v", r, err)
			}
			r, err := shared.Ask(t.Context(), "video", Command{Name: Pause})
			if refused := strings.Contains(r.Error, "operator's credential"); err != nil || refused == allowed {
				t.Errorf("pause: %+v, %v", r, err)
			}
			// A command line of before there were roles asks on another subject.
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

func TestRevoking(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	sensor := Grant{Sensor, "video", "i1"}
	text, err := c.ring.Issue(sensor, 0)
	if err != nil {
		t.Fatal(err)
	}
	stolen := connect(t, Options{URL: c.server.URL(), Persistent: true, Identify: func() (Identity, error) { return Identity{Credential: text}, nil }})
	other := connect(t, as(c.server, c.ring, Sensor, "i2"))
	if err := c.ring.Revoke(sensor); err != nil {
		t.Fatal(err)
	}
	eventually(t, "cut off and kept out", func() bool { return strings.Contains(stolen.Link().Problem, "refused the credential of sensor i1") })
	if !other.Connected() {
		t.Error("another's credential was ended too")
	}
	anew := connect(t, as(c.server, c.ring, Sensor, "i1")) // made and shown at once: no clock decides
	if !anew.Connected() {
		t.Error("the credential made after it is refused")
	}
	list, err := c.ring.List()
	if err != nil || len(list) != 3 || !list[0].Revoked || list[1].Revoked || list[2].Revoked {
		t.Errorf("%+v, %v", list, err)
	}
}

// A data folder that is emptied under a running controller costs neither the way to command it nor what was revoked.
func TestAnEmptiedKeyringComesBack(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	g := Grant{Operator, "video", "mallory"}
	revoked, err := ring.Issue(g, 0)
	if err != nil {
		t.Fatal(err)
	}
	good, err := ring.Issue(Grant{Operator, "video", "anna"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	show := func(text []byte) Options {
		return Options{URL: s.URL(), Identify: func() (Identity, error) { return Identity{Credential: text}, nil }}
	}
	if err := ring.Revoke(g); err != nil {
		t.Fatal(err)
	}
	connect(t, show(good))
	if err := os.RemoveAll(ring.Dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the folder back", func() bool {
		_, err1 := os.Stat(filepath.Join(ring.Dir, accountFile))
		_, err2 := os.Stat(filepath.Join(ring.Dir, revokedFile))
		return err1 == nil && err2 == nil
	})
	connect(t, show(good))
	connect(t, as(s, ring, Operator, "operator"))
	_, err = Connect(show(revoked))
	wantUserError(t, err, "refused the credential")
}

func TestExpiry(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	text, err := ring.Issue(Grant{Sensor, "video", "i1"}, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, Options{URL: s.URL(), Persistent: true, Identify: func() (Identity, error) { return Identity{Credential: text}, nil }})
	if !c.Connected() {
		t.Fatal("not connected")
	}
	eventually(t, "ended by time", func() bool { return strings.Contains(c.Link().Problem, "refused the credential") })
}

// One that sends without end is cut off; others notice nothing.
func TestAFloodIsCutOff(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	text, err := c.ring.Issue(Grant{Sensor, "video", "i1"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	g := c.server.gate
	nc, _ := raw(t, c.server.URL(), text)
	g.count(open(c.server.nats), time.Second)
	for range 5000 {
		if err := nc.Publish("quell.video.agent.i1", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for id, why := range g.count(open(c.server.nats), time.Second) {
		g.cutOff(c.server.nats, id, why)
	}
	eventually(t, "cut off", func() bool { return !nc.IsConnected() })
	_, err = Connect(Options{URL: c.server.URL(), Identify: func() (Identity, error) { return Identity{Credential: text}, nil }})
	wantUserError(t, err, "refused the credential")
	connect(t, as(c.server, c.ring, Sensor, "i2"))
}

func TestACredentialHasAFewConnections(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	most := Sensor.limits().connections
	for range most {
		connect(t, as(s, ring, Sensor, "i1"))
	}
	_, err := Connect(as(s, ring, Sensor, "i1"))
	wantUserError(t, err, "refused the credential")
	connect(t, as(s, ring, Sensor, "i2"))
}

func TestKeyringFiles(t *testing.T) {
	ring := Keyring{filepath.Join(t.TempDir(), "credentials")}
	g := Grant{Operator, "video", "operator"}
	if _, err := ring.Find(g); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a key: %v", err)
	}
	if err := errors.Join(ring.Make(), ring.Make()); err != nil {
		t.Fatal(err)
	}
	first, err := ring.Find(g)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ring.Find(g)
	if err != nil || string(again) != string(first) {
		t.Errorf("a credential that is good was made anew: %v", err)
	}
	err = filepath.WalkDir(ring.Dir, func(path string, d os.DirEntry, err error) error {
		if info, statErr := d.Info(); err != nil || statErr != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v %v %v", path, info.Mode(), err, statErr)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// A file that was copied from elsewhere, or of another key, is made anew by who has the key.
	for name, damage := range map[string]func() error{
		"damaged":         func() error { return os.WriteFile(ring.Path(g), []byte("x"), 0o600) },
		"of another key":  func() error { return os.Remove(filepath.Join(ring.Dir, accountFile)) },
		"of another name": func() error { return os.Rename(ring.Path(Grant{Sensor, "video", "i1"}), ring.Path(g)) },
	} {
		if _, err := ring.Find(Grant{Sensor, "video", "i1"}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(damage(), ring.Make()); err != nil {
			t.Fatal(err)
		}
		text, err := ring.Find(g)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := parseCredential(text); err != nil || c.grant != g {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(ring.Dir, revokedFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = StartServer(ServerOptions{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Keyring: &ring})
	wantUserError(t, err, revokedFile, "Restore it")
}

func TestGrantsAreChecked(t *testing.T) {
	ring := Keyring{t.TempDir()}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []Grant{{"root", "video", "x"}, {Sensor, "video", ""}, {Sensor, "", "i1"}, {shared, "video", "x"},
		{Operator, "video", "anna\x1b[2J"}, {Operator, "video", strings.Repeat("a", 100)}, {Sensor, "video", strings.Repeat("a", 300)}} {
		if _, err := ring.Issue(bad, 0); err == nil {
			t.Errorf("%+v was granted", bad)
		}
	}
	// Names are escaped, so none can widen its subject.
	for _, id := range []string{"*", ">", "i1.>", "a b", "ü"} {
		for _, subject := range (Grant{Sensor, "my.video", id}).subjects().publish {
			if strings.ContainsAny(subject, "*> ") || strings.Count(subject, ".") != 4 {
				t.Errorf("%q may publish on %s", id, subject)
			}
		}
	}
}

func TestALongNameFits(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	name := strings.Repeat("ü.", maxInstanceName/3)
	if err := connect(t, as(c.server, c.ring, Sensor, name)).PublishReading(reading(name)); err != nil {
		t.Fatal(err)
	}
	receive(t, c.readings)
}

// An external NATS that is configured as NATSConfig says grants the same.
func TestAnExternalNATSGrantsTheSame(t *testing.T) {
	ring := Keyring{t.TempDir()}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	revoked, err := ring.Issue(Grant{Operator, "video", "mallory"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Revoke(Grant{Operator, "video", "mallory"}); err != nil {
		t.Fatal(err)
	}
	s := external(t, ring, "jetstream: {store_dir: \""+t.TempDir()+"\"}\n")
	is := func(role Role, id string) Options {
		return Options{URL: s.ClientURL(), Identify: ring.Identify(Grant{role, "video", id})}
	}
	controller := connect(t, is(Controller, "controller"))
	appendEvents(t, journal(t, controller, JournalOptions{}), 2)
	stop, err := controller.Serve("video", func(_ context.Context, cmd Command) Reply { return Reply{Body: json.RawMessage(`"` + cmd.By + `"`)} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	reply, err := connect(t, is(Operator, "anna")).Ask(t.Context(), "video", Command{Name: Pause, By: "root"})
	if err != nil || string(reply.Body) != `"anna"` {
		t.Errorf("%s %s, %v", reply.Body, reply.Error, err)
	}
	sensor, err := ring.Issue(Grant{Sensor, "video", "i1"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	nc, denied := raw(t, s.ClientURL(), sensor)
	subjects := attempts("i1")
	delete(subjects, "the system's account") // it is another one here: nobody listens
	wantRefused(t, nc, denied, subjects)
	for _, o := range []Options{{URL: s.ClientURL()}, {URL: s.ClientURL(), Token: "t"},
		{URL: s.ClientURL(), Identify: func() (Identity, error) { return Identity{Credential: revoked}, nil }}} {
		if _, err := Connect(o); err == nil {
			t.Errorf("%+v was let in", o)
		}
	}
}

// external starts a NATS server that accepts a keyring's credentials.
func external(t *testing.T, ring Keyring, more string) *server.Server {
	t.Helper()
	text, err := ring.NATSConfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(path, []byte("listen: \"127.0.0.1:-1\"\n"+more+text), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("not ready")
	}
	return s
}

// A leaf node that is told the account that NATSConfig names passes on the readings of those who show credentials there.
func TestALeafNodeTakesTheSameCredentials(t *testing.T) {
	ring := Keyring{t.TempDir()}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	text, err := ring.NATSConfig()
	if err != nil {
		t.Fatal(err)
	}
	account := regexp.MustCompile(`(?m)^# +account: (\S+)$`).FindStringSubmatch(text)
	if account == nil {
		t.Fatalf("no account for leaf nodes in\n%s", text)
	}
	link := Grant{Leaf, "video", "west"}
	if _, err := ring.Keep(link, 0); err != nil {
		t.Fatal(err)
	}
	uplink := freePorts(t, 1)[0]
	hub := external(t, ring, fmt.Sprintf("leafnodes: {listen: \"127.0.0.1:%d\"}\n", uplink))
	leaf := external(t, ring, fmt.Sprintf("leafnodes: {remotes: [{urls: [\"nats://127.0.0.1:%d\"], account: %s, credentials: %q}]}\n",
		uplink, account[1], ring.Path(link)))
	got := make(chan quell.Reading, 1000)
	controller := connect(t, Options{URL: hub.ClientURL(), Identify: ring.Identify(Grant{Controller, "video", "controller"})})
	stop, err := controller.SubscribeReadings("video", into(t, func(r quell.Reading, _ time.Time) { got <- r }))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	agent := connect(t, Options{URL: leaf.ClientURL(), Identify: ring.Identify(Grant{Sensor, "video", "i1"})})
	within(t, patience, "a reading through the leaf node", func() error {
		if err := agent.PublishReading(reading("i1")); err != nil {
			return err
		}
		select {
		case <-got:
			return nil
		case <-time.After(20 * time.Millisecond): // the leaf node is not connected yet: send another
			return errors.New("none arrived")
		}
	})
	if _, err := Connect(Options{URL: leaf.ClientURL()}); err == nil {
		t.Error("the leaf node lets in who shows nothing")
	}

	// Nobody behind it commands, and the link's file opens nothing else.
	obey, err := controller.Serve("video", func(context.Context, Command) Reply { return Reply{} })
	if err != nil {
		t.Fatal(err)
	}
	defer obey()
	operator := Options{Identify: ring.Identify(Grant{Operator, "video", "anna"})}
	operator.URL = hub.ClientURL()
	if _, err := connect(t, operator).Ask(t.Context(), "video", Command{Name: Pause}); err != nil {
		t.Errorf("an operator at the hub: %v", err)
	}
	operator.URL = leaf.ClientURL()
	if _, err := connect(t, operator).Ask(t.Context(), "video", Command{Name: Pause}); !errors.Is(err, errNoController) {
		t.Errorf("an operator at the leaf node: %v", err)
	}
	if _, err := Connect(Options{URL: hub.ClientURL(), Identify: ring.Identify(link)}); err == nil {
		t.Error("the leaf node's credential lets a client in")
	}
	s, own := guarded(t, ServerOptions{})
	_, err = Connect(Options{URL: s.URL(), Identify: own.Identify(link)})
	wantUserError(t, err, "refused the credential of leaf west")
}
