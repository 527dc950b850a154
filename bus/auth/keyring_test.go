package auth

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/subjects"
	"github.com/quellhq/quell/internal/need"
)

// TestRootLeavesTheKeyringToItsUser: what root does to the keyring of another user's controller, that user can read. A folder that was
// there keeps its owner.
func TestRootLeavesTheKeyringToItsUser(t *testing.T) {
	need.Root(t)
	const user = 65534
	data := t.TempDir()
	if err := os.Chown(data, user, user); err != nil {
		t.Fatal(err)
	}
	ring, g := Keyring{Dir: filepath.Join(data, "credentials"), Own: "video"}, Grant{Sensor, "video", "i1"}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	_, noCredential := ring.Keep(g, 0)
	_, noToken := ring.Tokens().Make(Token{Name: "video", Service: "video", LifetimeS: 3600}, time.Hour)
	if err := errors.Join(noCredential, noToken, ring.Revoke(g)); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := filepath.WalkDir(ring.Dir, func(path string, d os.DirEntry, err error) error {
		info, noInfo := d.Info()
		if err != nil || noInfo != nil {
			return errors.Join(err, noInfo)
		}
		if seen++; info.Sys().(*syscall.Stat_t).Uid != user {
			t.Errorf("%s belongs to user %d", path, info.Sys().(*syscall.Stat_t).Uid)
		}
		return nil
	})
	if err != nil || seen < 7 {
		t.Errorf("%d files and folders: %v", seen, err)
	}
	if err := errors.Join(os.Chown(data, 0, 0), ring.Make(), ring.Revoke(g)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(ring.Dir)
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != user {
		t.Errorf("the folder that was there belongs to another user: %v", err)
	}
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
		if c, err := parseCredential(text); err != nil || c.Grant != g {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(ring.Dir, revokedFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var user *quell.UserError
	if _, err := New(Options{Keyring: &ring}); !errors.As(err, &user) || !strings.Contains(err.Error(), revokedFile) {
		t.Errorf("damaged revocations: %v", err)
	}
}

// What a person revoked stays revoked if the file of revocations is lost or replaced by an older one, also while a controller runs.
func TestRevocationsOutliveTheirFile(t *testing.T) {
	ring, g := Keyring{Dir: t.TempDir()}, Grant{Operator, "video", "left"}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Keep(g, 0); err != nil {
		t.Fatal(err)
	}
	if err := ring.Revoke(g); err != nil {
		t.Fatal(err)
	}
	running, err := New(Options{Keyring: &ring})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(ring.Dir, revokedFile)
	for name, damage := range map[string]func() error{
		"lost":  func() error { return os.Remove(path) },
		"older": func() error { return os.WriteFile(path, []byte("{}"), 0o600) },
	} {
		if err := errors.Join(damage(), running.reload()); err != nil {
			t.Fatal(err)
		}
		if running.revoked[grantKey(g)] != 1 {
			t.Errorf("%s while a controller runs: %v", name, running.revoked)
		}
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		started, err := New(Options{Keyring: &ring})
		if err != nil || started.revoked[grantKey(g)] != 1 {
			t.Errorf("%s before a start: %v", name, err)
		}
	}
	if list, err := ring.List(); err != nil || len(list) != 1 || !list[0].Revoked {
		t.Errorf("%+v %v", list, err)
	}
	text, err := ring.Keep(g, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := parseCredential(text); err != nil || c.generation != 1 {
		t.Errorf("one that is made anew: %+v %v", c, err)
	}
}

func TestGrantsAreChecked(t *testing.T) {
	ring := Keyring{Dir: t.TempDir()}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []Grant{{"root", "video", "x"}, {Sensor, "video", ""}, {Sensor, "", "i1"}, {Shared, "video", "x"},
		{Operator, "video", "anna\x1b[2J"}, {Operator, "video", strings.Repeat("a", 100)}, {Sensor, "video", strings.Repeat("a", 300)}} {
		if _, err := ring.Issue(bad, 0); err == nil {
			t.Errorf("%+v was granted", bad)
		}
	}
	// Names are escaped, so no name can widen its subject.
	for _, id := range []string{"*", ">", "i1.>", "a b", "ü"} {
		for _, subject := range (Grant{Sensor, "my.video", id}).subjects().publish {
			own := strings.TrimSuffix(subject, ".*") // subject of an answer, for any request
			if strings.ContainsAny(own, "*> ") || !strings.HasSuffix(own, "."+subjects.Escape(id)) || strings.Contains(subjects.Escape(id), ".") {
				t.Errorf("%q may publish on %s", id, subject)
			}
		}
	}
}

// Of several connections of a grant, the credential that ends first decides: which of them asked is not known, and one that was revoked may
// not have been ended yet.
func TestTheCredentialThatEndsFirstDecides(t *testing.T) {
	ring, anna, now := Keyring{Dir: t.TempDir()}, Grant{Operator, "video", "anna"}, time.Now()
	g, err := New(Options{Keyring: &ring, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	soon, late := client{grant: anna, expires: now.Add(time.Hour)}, client{grant: anna, expires: now.Add(3 * time.Hour)}
	if err := errors.Join(g.enter(1, late), g.enter(2, client{grant: anna}), g.enter(3, soon)); err != nil {
		t.Fatal(err)
	}
	if valid := g.Valid(anna); !valid(now) || valid(now.Add(2*time.Hour)) {
		t.Errorf("valid now: %v; valid after the first has expired: %v", valid(now), valid(now.Add(2*time.Hour)))
	}
	if err := ring.Revoke(anna); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.reload(), g.enter(4, client{grant: anna, generation: 1})); err != nil {
		t.Fatal(err)
	}
	for range 100 { // connections are looked at in random order
		if g.Valid(anna)(now) {
			t.Fatal("it is valid while a connection with a revoked credential is open")
		}
	}
	g.unwelcome() // ends that connection, as Watch does
	if !g.Valid(anna)(now) {
		t.Error("it is not valid with the new credential alone")
	}
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
		if err := Check(text, g); err != nil {
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
