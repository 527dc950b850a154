package auth

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
)

// door is a keyring with admissions of the service video and a join token.
type door struct {
	*Admissions
	t   *testing.T
	now time.Time
}

func newDoor(t *testing.T, token Token, good time.Duration) *door {
	t.Helper()
	ring := Keyring{Dir: filepath.Join(t.TempDir(), "credentials")}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	token.Service, token.Name, token.LifetimeS = "video", "web", 3600
	if _, err := ring.Tokens().Make(token, good); err != nil {
		t.Fatal(err)
	}
	return &door{NewAdmissions(ring, "video"), t, time.Now()}
}

func newKey(t *testing.T) string {
	t.Helper()
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return public
}

// wants checks that an instance joins, or is refused with these words.
func (d *door) wants(instance, key, refusal string) Admitted {
	d.t.Helper()
	a, err := d.Join("web", instance, key, d.now)
	d.check(err, refusal)
	if refusal == "" {
		c, claims, err := parseClaim(a.Claim)
		if err != nil || c.Grant != (Grant{Sensor, "video", instance}) || claims.Subject != key || c.expires.IsZero() {
			d.t.Errorf("the claim %+v, %v", c, err)
		}
	}
	return a
}

func (d *door) check(err error, refusal string) {
	d.t.Helper()
	var refused *Refusal
	switch {
	case refusal == "" && err != nil:
		d.t.Errorf("refused: %v", err)
	case refusal != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), refusal)):
		d.t.Errorf("%v, not %q", err, refusal)
	}
}

func (d *door) used() int {
	d.t.Helper()
	list, err := d.ring.Tokens().List()
	if err != nil || len(list) != 1 {
		d.t.Fatal(list, err)
	}
	return list[0].Used
}

func TestANameBelongsToTheKeyThatJoined(t *testing.T) {
	d := newDoor(t, Token{}, 0)
	own, other := newKey(t), newKey(t)
	if !d.wants("i1", own, "").New || d.wants("i1", own, "").New {
		t.Error("only the first time is new")
	}
	d.wants("i1", other, "has joined already, with another key")
	d.now = d.now.Add(1000 * time.Hour) // also long after its credential ended
	d.wants("i1", other, "has joined already, with another key")
	d.wants("i1", own, "")
	if n := d.used(); n != 1 {
		t.Errorf("%d uses", n)
	}
	again := NewAdmissions(d.ring, "video") // a restarted controller
	_, err := again.Join("web", "i1", other, d.now)
	d.check(err, "has joined already")
	_, err = again.Renew("i1", own, d.now)
	d.check(err, "")
	_, err = again.Renew("i1", other, d.now)
	d.check(err, "another key")
	_, err = again.Renew("i2", other, d.now)
	d.check(err, "has not joined")
	_, err = NewAdmissions(d.ring, "shop").Join("web", "i1", other, d.now)
	d.check(err, "there is no join token web here")
}

func TestANameThatIsTakenOtherwise(t *testing.T) {
	d := newDoor(t, Token{}, 0)
	if _, err := d.ring.Keep(Grant{Sensor, "video", "made"}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ring.Find(Grant{Sensor, "video", "found"}); err != nil {
		t.Fatal(err)
	}
	d.wants("made", newKey(t), "a credential that was not got by joining")
	d.wants("found", newKey(t), "a credential that was not got by joining")
	d.Reports = func(instance string) bool { return instance == "shared" }
	d.wants("shared", newKey(t), "readings of shared arrive already")
	d.wants("free", newKey(t), "")
	for _, bad := range []string{"", strings.Repeat("x", 300), "a\x1b[2J"} {
		d.wants(bad, newKey(t), " ")
	}
	d.wants("i9", "no key", "no key of its own")
	if n := d.used(); n != 1 {
		t.Errorf("%d uses", n)
	}
}

func TestATokenEnds(t *testing.T) {
	used := newDoor(t, Token{Uses: 2}, 0)
	first := newKey(t)
	used.wants("i1", first, "")
	used.wants("i2", newKey(t), "")
	used.wants("i3", newKey(t), "used up")
	used.wants("i1", first, "") // it has joined already

	d := newDoor(t, Token{}, time.Hour)
	own := newKey(t)
	d.wants("i1", own, "")
	d.now = d.now.Add(2 * time.Hour)
	d.wants("i2", newKey(t), "expired")
	d.now = d.now.Add(-100 * time.Hour) // a clock that is set back does not revive it, nor does a restart
	d.wants("i2", newKey(t), "expired")
	d.Admissions = NewAdmissions(d.ring, "video")
	d.wants("i2", newKey(t), "expired")
	if _, err := d.Renew("i1", own, d.now); err != nil {
		t.Errorf("those that joined are not affected: %v", err)
	}

	d = newDoor(t, Token{}, 0)
	d.wants("i1", own, "")
	if err := d.ring.Tokens().Revoke("video", "web"); err != nil {
		t.Fatal(err)
	}
	d.wants("i2", newKey(t), "revoked")
	if _, err := d.Renew("i1", own, d.now); err != nil {
		t.Errorf("those that joined are not affected: %v", err)
	}
	if err := d.ring.Tokens().Revoke("video", "wbe"); err == nil {
		t.Error("a token that does not exist was revoked")
	}
	if _, err := d.ring.Tokens().Make(Token{Name: "web", Service: "video", LifetimeS: 3600}, 0); err == nil {
		t.Error("a name was used twice")
	}
}

// A machine keeps the lifetime of its credentials when the token with which it joined is no longer listed.
func TestATokenThatIsNoLongerListed(t *testing.T) {
	d := newDoor(t, Token{}, 0)
	own, old := newKey(t), newKey(t)
	d.wants("i1", own, "")
	if err := d.note(Issued{Token: "web", ID: "i2", Key: old}, d.now); err != nil { // by a version that did not note the lifetime
		t.Fatal(err)
	}
	if err := d.ring.Tokens().write(nil); err != nil {
		t.Fatal(err)
	}
	for instance, c := range map[string]struct {
		key  string
		want time.Duration
	}{"i1": {own, time.Hour}, "i2": {old, DefaultLifetime}} {
		if a, err := d.Renew(instance, c.key, d.now); err != nil || a.Lifetime != c.want {
			t.Errorf("%s: %s, %v; want %s", instance, a.Lifetime, err, c.want)
		}
	}
}

// When there are too many tokens, those that expired first make room. They stay invalid if their names are given again.
func TestExpiredTokensMakeRoom(t *testing.T) {
	d := newDoor(t, Token{}, 0)
	tokens, hour := d.ring.Tokens(), time.Now().Add(-time.Hour)
	list := []Token{{Name: "lasting", Service: "video"}}
	for i := range mostTokens - 1 {
		list = append(list, Token{Name: fmt.Sprint("t", i), Service: "video", Expires: hour})
	}
	if err := tokens.write(list); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Make(Token{Name: "new", Service: "video", LifetimeS: 3600}, 0); err != nil {
		t.Fatal(err)
	}
	list, err := tokens.List()
	if err != nil || len(list) != mostTokens || list[0].Name != "lasting" || list[1].Name != "t1" || list[mostTokens-1].Name != "new" {
		t.Fatalf("%d tokens, %v", len(list), err)
	}
	revoked, err := d.ring.revoked()
	if err != nil || revoked[grantKey(Grant{Join, "video", "t0"})] != 1 || len(revoked) != 1 {
		t.Errorf("revoked are %v, %v", revoked, err)
	}
	for i := range list {
		list[i].Expires = time.Time{}
	}
	if err := tokens.write(list); err != nil {
		t.Fatal(err)
	}
	_, err = tokens.Make(Token{Name: "more", Service: "video", LifetimeS: 3600}, 0)
	if err == nil || !strings.Contains(err.Error(), "nobody needs") {
		t.Errorf("more than are possible: %v", err)
	}
}

// A person's revocation shuts a machine out until it has a new key; an instance that only left may come back.
func TestWhoWasRevokedStaysOut(t *testing.T) {
	d := newDoor(t, Token{Uses: 3}, 0)
	bad, left := newKey(t), newKey(t)
	d.wants("i1", bad, "")
	d.wants("i2", left, "")
	if err := d.ring.Revoke(Grant{Sensor, "video", "i1"}); err != nil {
		t.Fatal(err)
	}
	d.wants("i1", bad, "was revoked")
	_, err := d.Renew("i1", bad, d.now)
	d.check(err, "was revoked")
	ids, err := d.ring.Retire("video", time.Now().Add(time.Hour), func(id string) bool { return id == "i2" })
	if err != nil || len(ids) != 1 || ids[0] != "i2" {
		t.Fatal(ids, err)
	}
	_, err = d.Renew("i2", left, d.now)
	d.check(err, "has not joined")
	d.wants("i2", left, "")
	d.wants("i1", bad, "was revoked")
	d.wants("i1", newKey(t), "used up") // the third use was that of i2
}

func TestBadTokens(t *testing.T) {
	d := newDoor(t, Token{}, 0)
	for _, bad := range []Token{
		{Name: "", LifetimeS: 3600}, {Name: strings.Repeat("x", 65), LifetimeS: 3600}, {Name: "short", LifetimeS: 59},
		{Name: "long", LifetimeS: 1e9}, {Name: "uses", LifetimeS: 3600, Uses: -1},
	} {
		bad.Service = "video"
		if _, err := d.ring.Tokens().Make(bad, 0); err == nil {
			t.Errorf("%+v was made", bad)
		}
	}
}

// A machine stores a credential only if it is one for its own key and name.
func TestAMachineKeepsItsKey(t *testing.T) {
	d := newDoor(t, Token{}, 0)
	h := Holding{filepath.Join(t.TempDir(), "joined", "i1.creds")}
	key, err := h.Key()
	if again, err2 := h.Key(); err != nil || err2 != nil || again != key {
		t.Fatal(key, again, err, err2)
	}
	a := d.wants("i1", key, "")
	if err := h.Store(a.Claim, Grant{Sensor, "video", "i1"}); err != nil {
		t.Error(err)
	}
	for _, wrong := range []struct {
		claim string
		of    Grant
	}{{a.Claim, Grant{Sensor, "video", "i2"}}, {d.wants("i3", newKey(t), "").Claim, Grant{Sensor, "video", "i3"}}, {"x", Grant{}}} {
		if err := h.Store(wrong.claim, wrong.of); err == nil {
			t.Errorf("a claim of %v was stored", wrong.of)
		}
	}
}

// A controller that cannot record who joins, as on a full disk, gives no credential and uses nothing up.
func TestNothingIsGivenWithoutARecord(t *testing.T) {
	d := newDoor(t, Token{Uses: 1}, 0)
	issued := filepath.Join(d.ring.Dir, issuedFile)
	if err := os.Mkdir(issued, 0o700); err != nil { // cannot be appended to
		t.Fatal(err)
	}
	var err error
	if d.stamp, err = d.look(); err != nil {
		t.Fatal(err)
	}
	d.names = map[string][]Issued{} // it was read before
	if a, err := d.Join("web", "i1", newKey(t), d.now); err == nil {
		t.Errorf("joined: %+v", a)
	}
	if err := os.Remove(issued); err != nil {
		t.Fatal(err)
	}
	d.wants("i1", newKey(t), "")
}

// A record that was not finished, as after a loss of power, does not take the next one with it.
func TestAnUnfinishedRecord(t *testing.T) {
	d := newDoor(t, Token{}, 0)
	own, made := newKey(t), Grant{Sensor, "video", "made"}
	tear := func() {
		t.Helper()
		file, err := os.OpenFile(filepath.Join(d.ring.Dir, issuedFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(`{"at":"2024`); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	tear()
	d.wants("i1", own, "")
	tear()
	if _, err := d.ring.Issue(made, 0); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]*Admissions{"the same controller": d.Admissions, "a restarted one": NewAdmissions(d.ring, "video")} {
		if _, err := a.Renew("i1", own, d.now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	list, err := d.ring.List()
	if err != nil || len(list) != 2 || list[0].ID != "i1" || list[1].ID != "made" {
		t.Errorf("%+v, %v", list, err)
	}
}

// A record that cannot be written as a whole, as on a full disk, leaves nothing behind.
func TestAHalfWrittenRecordIsRemoved(t *testing.T) {
	d := newDoor(t, Token{}, 0)
	d.wants("i1", newKey(t), "")
	issued := filepath.Join(d.ring.Dir, issuedFile)
	before, err := os.ReadFile(issued)
	if err != nil {
		t.Fatal(err)
	}
	before = append(before, bytes.Repeat([]byte("\n"), 1<<20)...) // larger than what else is written meanwhile, such as the test's own log
	if err := os.WriteFile(issued, before, 0o600); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	few := syscall.Rlimit{Cur: uint64(len(before)) + 10, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &few); err != nil {
		t.Fatal(err)
	}
	_, failed := d.ring.Issue(Grant{Sensor, "video", "made"}, 0)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(failed, syscall.EFBIG) {
		t.Errorf("writing more than is possible: %v", failed)
	}
	if after, err := os.ReadFile(issued); err != nil || !bytes.Equal(after, before) {
		t.Errorf("%q is left, %v", after[min(len(before), len(after)):], err)
	}
}

// A proof is only checked for a name that is free, or that belongs to its sender's key. What it gives ends, and is revoked with its
// instance.
func TestAProof(t *testing.T) {
	d := newDoor(t, Token{}, 0)
	own, other := newKey(t), newKey(t)
	checked, machine := []bool{}, ""
	prove := func(instance, key, refused string, verdict error) Admitted {
		t.Helper()
		a, err := d.Prove("aws", instance, key, d.now, func(again bool) (string, error) {
			checked = append(checked, again)
			return machine, verdict
		})
		if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
			t.Errorf("%v, wanted %q", err, refused)
		}
		return a
	}
	prove("i1", own, "false", errors.New("false"))
	if a := prove("i1", own, "", nil); !a.New || a.Lifetime != ProofLifetime {
		t.Errorf("%+v", a)
	}
	prove("i1", own, "", nil)
	prove("i1", other, "has joined already, with another key", nil)
	d.wants("i1", other, "has joined already, with another key")
	if want := []bool{false, false, true}; !slices.Equal(checked, want) {
		t.Errorf("checked %v, wanted %v", checked, want)
	}
	if a, err := d.Renew("i1", own, d.now); err != nil || a.Lifetime != ProofLifetime {
		t.Errorf("%+v, %v", a, err)
	}
	ids, err := d.ring.Retire("video", time.Now().Add(time.Hour), func(string) bool { return true })
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	prove("i1", other, "", nil) // another machine of that name
	if err := d.ring.Revoke(Grant{Sensor, "video", "i1"}); err != nil {
		t.Fatal(err)
	}
	prove("i1", other, "was revoked", nil)
	// A platform that uses names again says which machine has one now: the other one loses it.
	machine = "first"
	prove("web-0", own, "", nil)
	prove("web-0", other, "has joined already, with another key", nil)
	machine = "second"
	prove("web-0", other, "false", errors.New("false"))
	if _, err := d.Renew("web-0", own, d.now); err != nil {
		t.Errorf("a proof that is false took the name: %v", err)
	}
	prove("web-0", other, "", nil)
	if _, err := d.Renew("web-0", own, d.now); err == nil {
		t.Error("the former machine kept its name")
	}
	d = &door{NewAdmissions(d.ring, "video"), t, d.now} // a restarted controller
	prove("web-0", other, "", nil)
	d.wants("web-0", newKey(t), "has joined already, with another key") // with a join token
	d.Reports = func(string) bool { return true }
	prove("i2", own, "readings of i2 arrive already", nil)
	if n := d.used(); n != 0 {
		t.Errorf("%d uses of a token", n)
	}
}
