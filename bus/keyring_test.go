package bus

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/bus/subjects"
)

func TestRevoking(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	sensor := auth.Grant{Role: auth.Sensor, Service: "video", ID: "i1"}
	text, err := c.ring.Issue(sensor, 0)
	if err != nil {
		t.Fatal(err)
	}
	stolen := connect(t, Options{URL: c.server.URL(), Persistent: true,
		Identify: func() (auth.Identity, error) { return auth.Identity{Credential: text}, nil }})
	other := connect(t, as(c.server, c.ring, auth.Sensor, "i2"))
	if err := c.ring.Revoke(sensor); err != nil {
		t.Fatal(err)
	}
	eventually(t, "cut off and kept out", func() bool {
		return strings.Contains(stolen.Link().Problem,
			"refused the credential of sensor i1")
	})
	if !other.Connected() {
		t.Error("another's credential was ended too")
	}
	anew := connect(t, as(c.server, c.ring, auth.Sensor, "i1")) // made and used at once: its validity must not depend on the clock
	if !anew.Connected() {
		t.Error("the credential made after it is refused")
	}
	list, err := c.ring.List()
	if err != nil || len(list) != 3 || !list[0].Revoked || list[1].Revoked || list[2].Revoked {
		t.Errorf("%+v, %v", list, err)
	}
}

// What was asked for with a credential is good until the credential expires or is revoked; one that is made after that changes nothing.
func TestWhatACredentialWasShownFor(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	anna := auth.Grant{Role: auth.Operator, Service: "video", ID: "anna"}
	text, err := ring.Issue(anna, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	show := func(text []byte) Options {
		return Options{URL: s.URL(), Identify: func() (auth.Identity, error) { return auth.Identity{Credential: text}, nil }}
	}
	connect(t, show(text))
	now := time.Now()
	valid, inKeyring := s.Valid(anna), auth.Unrevoked(ring, anna)
	nobody := s.Valid(auth.Grant{Role: auth.Operator, Service: "video", ID: "bob"})
	if !valid(now) || !inKeyring(now) {
		t.Error("it is not valid while the credential is")
	}
	if valid(now.Add(2 * time.Hour)) {
		t.Error("it is valid after the credential has expired")
	}
	if nobody(now) {
		t.Error("it is valid without a connection")
	}
	if err := ring.Revoke(anna); err != nil {
		t.Fatal(err)
	}
	late := s.Valid(anna) // asked for before the connection was ended
	for range 2 {
		if valid(now) || inKeyring(now) || late(now) {
			t.Error("it is valid after the credential was revoked")
		}
		if text, err = ring.Issue(anna, 0); err != nil {
			t.Fatal(err)
		}
		connect(t, show(text))
	}
}

// If the data folder is emptied while the controller runs, the controller still accepts commands, and revoked credentials stay revoked.
func TestAnEmptiedKeyringComesBack(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	g := auth.Grant{Role: auth.Operator, Service: "video", ID: "mallory"}
	revoked, err := ring.Issue(g, 0)
	if err != nil {
		t.Fatal(err)
	}
	good, err := ring.Issue(auth.Grant{Role: auth.Operator, Service: "video", ID: "anna"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	show := func(text []byte) Options {
		return Options{URL: s.URL(), Identify: func() (auth.Identity, error) { return auth.Identity{Credential: text}, nil }}
	}
	if err := ring.Revoke(g); err != nil {
		t.Fatal(err)
	}
	connect(t, show(good))
	if err := os.RemoveAll(ring.Dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the folder back", func() bool {
		_, err1 := os.Stat(filepath.Join(ring.Dir, "account.nk"))
		_, err2 := os.Stat(filepath.Join(ring.Dir, "revoked.json"))
		return err1 == nil && err2 == nil
	})
	connect(t, show(good))
	connect(t, as(s, ring, auth.Operator, "operator"))
	_, err = Connect(show(revoked))
	wantUserError(t, err, "refused the credential")
}

func TestExpiry(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	text, err := ring.Issue(auth.Grant{Role: auth.Sensor, Service: "video", ID: "i1"}, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, Options{URL: s.URL(), Persistent: true,
		Identify: func() (auth.Identity, error) { return auth.Identity{Credential: text}, nil }})
	if !c.Connected() {
		t.Fatal("not connected")
	}
	eventually(t, "ended by time", func() bool { return strings.Contains(c.Link().Problem, "refused the credential") })
}

func TestALongNameFits(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	name := strings.Repeat("ü.", subjects.MaxInstance/3)
	if err := connect(t, as(c.server, c.ring, auth.Sensor, name)).PublishReading(reading(name)); err != nil {
		t.Fatal(err)
	}
	receive(t, c.readings)
}

// TestDamagedRevocationsAreAnError checks that a bus does not start if it cannot tell what was revoked.
func TestDamagedRevocationsAreAnError(t *testing.T) {
	ring := auth.Keyring{Dir: t.TempDir()}
	if err := errors.Join(ring.Make(), os.WriteFile(filepath.Join(ring.Dir, "revoked.json"), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err := StartServer(ServerOptions{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Keyring: &ring})
	wantUserError(t, err, "revoked.json", "Restore it")
}
