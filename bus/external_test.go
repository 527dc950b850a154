package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
)

// An external NATS that is configured with NATSConfig grants the same rights.
func TestAnExternalNATSGrantsTheSame(t *testing.T) {
	ring := auth.Keyring{Dir: t.TempDir()}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	revoked, err := ring.Issue(auth.Grant{Role: auth.Operator, Service: "video", ID: "mallory"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Revoke(auth.Grant{Role: auth.Operator, Service: "video", ID: "mallory"}); err != nil {
		t.Fatal(err)
	}
	s := external(t, ring, "jetstream: {store_dir: \""+t.TempDir()+"\"}\n")
	is := func(role auth.Role, id string) Options {
		return Options{URL: s.ClientURL(), Identify: ring.Identify(auth.Grant{Role: role, Service: "video", ID: id})}
	}
	controller := connect(t, is(auth.Controller, "controller"))
	appendEvents(t, journal(t, controller, JournalOptions{}), 2)
	stop, err := controller.Serve("video", func(_ context.Context,
		cmd Command) Reply {
		return Reply{Body: json.RawMessage(`"` + cmd.By + `"`)}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	reply, err := connect(t, is(auth.Operator, "anna")).Ask(t.Context(), "video", Command{Name: Pause, By: "root"})
	if err != nil || string(reply.Body) != `"anna"` {
		t.Errorf("%s %s, %v", reply.Body, reply.Error, err)
	}
	sensor, err := ring.Issue(auth.Grant{Role: auth.Sensor, Service: "video", ID: "i1"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	nc, denied := raw(t, s.ClientURL(), sensor)
	subjects := attempts("i1")
	delete(subjects, "the system's account") // the external server has another system account, where nobody listens
	wantRefused(t, nc, denied, subjects)
	for _, o := range []Options{{URL: s.ClientURL()}, {URL: s.ClientURL(), Token: "t"},
		{URL: s.ClientURL(), Identify: func() (auth.Identity, error) { return auth.Identity{Credential: revoked}, nil }}} {
		if _, err := Connect(o); err == nil {
			t.Errorf("%+v was let in", o)
		}
	}
}

// external starts a NATS server that accepts a keyring's credentials.
func external(t *testing.T, ring auth.Keyring, more string) *server.Server {
	t.Helper()
	text, err := auth.NATSConfig(ring)
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
	return started(t, opts)
}

// started runs a NATS server until the test ends.
func started(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
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

// A leaf node that uses the account that NATSConfig names forwards the readings of clients with credentials.
func TestALeafNodeTakesTheSameCredentials(t *testing.T) {
	ring := auth.Keyring{Dir: t.TempDir()}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	text, err := auth.NATSConfig(ring)
	if err != nil {
		t.Fatal(err)
	}
	account := regexp.MustCompile(`(?m)^# +account: (\S+)$`).FindStringSubmatch(text)
	if account == nil {
		t.Fatalf("no account for leaf nodes in\n%s", text)
	}
	link := auth.Grant{Role: auth.Leaf, Service: "video", ID: "west"}
	if _, err := ring.Keep(link, 0); err != nil {
		t.Fatal(err)
	}
	uplink := freePorts(t, 1)[0]
	hub := external(t, ring, fmt.Sprintf("leafnodes: {listen: \"127.0.0.1:%d\"}\n", uplink))
	leaf := external(t, ring, fmt.Sprintf("leafnodes: {remotes: [{urls: [\"nats://127.0.0.1:%d\"], account: %s, credentials: %q}]}\n",
		uplink, account[1], ring.Path(link)))
	got := make(chan quell.Reading, 1000)
	controller := connect(t, Options{URL: hub.ClientURL(),
		Identify: ring.Identify(auth.Grant{Role: auth.Controller, Service: "video", ID: "controller"})})
	stop, err := controller.SubscribeReadings("video", into(t, func(r quell.Reading, _ time.Time) { got <- r }))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	agent := connect(t, Options{URL: leaf.ClientURL(), Identify: ring.Identify(auth.Grant{Role: auth.Sensor, Service: "video", ID: "i1"})})
	within(t, patience, "a reading through the leaf node", func() error {
		if err := agent.PublishReading(reading("i1")); err != nil {
			return err
		}
		select {
		case <-got:
			return nil
		case <-time.After(20 * time.Millisecond): // the leaf node is not connected yet: send again
			return errors.New("none arrived")
		}
	})
	if _, err := Connect(Options{URL: leaf.ClientURL()}); err == nil {
		t.Error("the leaf node lets in who shows nothing")
	}

	// No client behind the leaf node may send commands, and the leaf node's own credential gives access to nothing else.
	obey, err := controller.Serve("video", func(context.Context, Command) Reply { return Reply{} })
	if err != nil {
		t.Fatal(err)
	}
	defer obey()
	operator := Options{Identify: ring.Identify(auth.Grant{Role: auth.Operator, Service: "video", ID: "anna"})}
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
