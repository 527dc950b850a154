package bus

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell/bus/auth"
)

// TestACredentialEndsWithItsInstance retires instances: one still runs, one is new, and one has a credential that a person made.
func TestACredentialEndsWithItsInstance(t *testing.T) {
	c := underControl(t, ServerOptions{}, Options{})
	sensors := map[string]*Conn{}
	for _, id := range []string{"gone", "runs", "made"} {
		if id == "made" {
			if _, err := c.ring.Keep(auth.Grant{Role: auth.Sensor, Service: "video", ID: id}, 0); err != nil {
				t.Fatal(err)
			}
		}
		o := as(c.server, c.ring, auth.Sensor, id)
		o.Persistent = true
		sensors[id] = connect(t, o)
	}
	runs := func(id string) bool { return id != "runs" }
	text, err := c.ring.Find(auth.Grant{Role: auth.Sensor, Service: "video", ID: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	for service, before := range map[string]time.Time{"video": time.Now().Add(-time.Hour), "other": time.Now().Add(time.Hour)} {
		if ids, err := c.ring.Retire(service, before, runs); err != nil || len(ids) > 0 {
			t.Fatalf("service %s: retired %q, %v", service, ids, err)
		}
	}
	if ids, err := c.ring.Retire("video", time.Now().Add(time.Hour), runs); err != nil || !slices.Equal(ids, []string{"gone"}) {
		t.Fatalf("retired %q, %v", ids, err)
	}
	_, err = Connect(Options{URL: c.server.URL(), Identify: func() (auth.Identity, error) { return auth.Identity{Credential: text}, nil }})
	wantUserError(t, err, "refused the credential of sensor gone")
	for _, id := range []string{"runs", "made"} {
		if !sensors[id].Connected() {
			t.Errorf("%s is cut off", id)
		}
	}
	if _, err := os.Stat(c.ring.Path(auth.Grant{Role: auth.Sensor, Service: "video", ID: "made"})); err != nil {
		t.Error(err)
	}
	if ids, err := c.ring.Retire("video", time.Now().Add(time.Hour), runs); err != nil || slices.Contains(ids, "made") {
		t.Errorf("retired %q, %v", ids, err)
	}
}
