package bus

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRevoking(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	sensor := Grant{Sensor, "video", "i1"}
	text, err := c.ring.Issue(sensor, 0)
	if err != nil {
		t.Fatal(err)
	}
	stolen := connect(t, Options{URL: c.server.URL(), Persistent: true,
		Identify: func() (Identity, error) { return Identity{Credential: text}, nil }})
	other := connect(t, as(c.server, c.ring, Sensor, "i2"))
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
	anew := connect(t, as(c.server, c.ring, Sensor, "i1")) // made and used at once: its validity must not depend on the clock
	if !anew.Connected() {
		t.Error("the credential made after it is refused")
	}
	list, err := c.ring.List()
	if err != nil || len(list) != 3 || !list[0].Revoked || list[1].Revoked || list[2].Revoked {
		t.Errorf("%+v, %v", list, err)
	}
}

// If the data folder is emptied while the controller runs, the controller still accepts commands, and revoked credentials stay revoked.
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

func TestKeyringFiles(t *testing.T) {
	ring := Keyring{Dir: filepath.Join(t.TempDir(), "credentials")}
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
	// A credential that was copied from elsewhere, or signed by another key, is made again by a process that has the key.
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
	ring := Keyring{Dir: t.TempDir()}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []Grant{{"root", "video", "x"}, {Sensor, "video", ""}, {Sensor, "", "i1"}, {shared, "video", "x"},
		{Operator, "video", "anna\x1b[2J"}, {Operator, "video", strings.Repeat("a", 100)}, {Sensor, "video", strings.Repeat("a", 300)}} {
		if _, err := ring.Issue(bad, 0); err == nil {
			t.Errorf("%+v was granted", bad)
		}
	}
	// Names are escaped, so no name can widen its subject.
	for _, id := range []string{"*", ">", "i1.>", "a b", "ü"} {
		for _, subject := range (Grant{Sensor, "my.video", id}).subjects().publish {
			own := strings.TrimSuffix(subject, ".*") // subject of an answer, for any request
			if strings.ContainsAny(own, "*> ") || !strings.HasSuffix(own, "."+escape(id)) || strings.Contains(escape(id), ".") {
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

// Services that share a keyring have the same key, and each a folder for its credentials, so that agents of one name do not get each
// other's.
func TestCredentialsOfSeveralServices(t *testing.T) {
	dir := t.TempDir()
	paths := map[string]bool{}
	for _, service := range []string{"shop", "api"} {
		ring, g := Keyring{Dir: dir, Own: service}, Grant{Sensor, service, "m1"}
		if err := ring.Make(); err != nil {
			t.Fatal(err)
		}
		text, err := ring.Find(g)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckCredential(text, g); err != nil {
			t.Error(err)
		}
		paths[ring.Path(g)] = true
	}
	list, err := Keyring{Dir: dir}.List()
	if len(paths) != 2 || err != nil || len(list) != 2 {
		t.Errorf("%v, %v, %v", paths, list, err)
	}
	if ids, err := (Keyring{Dir: dir, Own: "shop"}).Retire("shop", time.Now().Add(time.Hour), func(string) bool { return true }); err != nil ||
		len(ids) != 1 {
		t.Errorf("retired %v, %v", ids, err)
	}
	if _, err := os.Stat((Keyring{Dir: dir, Own: "api"}).Path(Grant{Sensor, "api", "m1"})); err != nil {
		t.Errorf("the credential of the other service is gone: %v", err)
	}
}
