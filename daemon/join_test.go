package daemon_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// TestJoining plays the life of a machine that joins with a token: it gets a credential, renews it before it ends, goes on when controller
// and agent are killed, is refused where the name is taken, and joins again after its credential was lost, but not after a revocation.
func TestJoining(t *testing.T) {
	r := newRig(t, "")
	r.write(fmt.Sprintf("policy: {name: static}\nprobe: {capacity: 40Mbps}\n"+
		"scaler: {kind: fixed, instances: [{id: web-1, address: %q}, {id: web-2, address: %q}]}\n", need.FreeAddress(t), need.FreeAddress(t)))
	first := r.start("controller")
	r.start("balancer")
	r.awaitStatus("decisions", func(s controller.Status) bool { return len(s.Instances) == 2 })
	token := filepath.Join(r.dir, "web.join")
	if out, status := r.quell("join-token", "create", "web", "--uses", "1", "--config", r.config, "--out",
		token); status != 0 ||
		!strings.Contains(out, "1 instance(s) of service shop can join") {
		t.Fatal(out)
	}
	r.shortLived()

	own := r.machine("own", "web-1")
	p := r.launchAgent(own)
	r.awaitReports("web-1")
	creds := filepath.Join(r.dir, "own", "joined", "shop", "web-1.creds")
	before := r.text(creds)
	r.await("a renewed credential", func() (bool, any) { return r.text(creds) != before, nil })

	p.kill(t)
	p = r.launchAgent(own)
	first.kill(t)
	r.start("controller")
	r.awaitStatus("decisions again", func(s controller.Status) bool { return len(s.Instances) == 2 })
	r.awaitReports("web-1")

	thief := r.launchAgent(r.machine("thief", "web-1")) // with the same token
	r.await("the thief to be refused", func() (bool, any) { return has(thief.said(), "has joined already, with another key"), thief.said() })
	late := r.launchAgent(r.machine("late", "web-2"))
	r.await("a used token", func() (bool, any) { return has(late.said(), "is used up: 1 instances joined with it"), late.said() })
	stranger := r.launchAgent(r.machine("stranger", "web-1"), "--instance", "db-1") // not listed, though its own configuration says so
	if status := stranger.ends(t); status == 0 {
		t.Error("an agent whose instance is not listed started")
	}

	p.kill(t) // the credential ends while the agent is away: it asks with the token again
	if err := os.Remove(creds); err != nil {
		t.Fatal(err)
	}
	p = r.launchAgent(own)
	r.await("a credential again", func() (bool, any) { return r.text(creds) != "", p.said() })

	if out, status := r.quell("credentials", "revoke", "sensor", "web-1", "--config", r.config); status != 0 {
		t.Fatal(out)
	}
	r.await("the revoked machine to be kept out", func() (bool, any) {
		return has(p.said(), "the credential of web-1 was revoked: to let this machine join again, remove its credential and key there"), p.said()
	})
	r.await("the journal", func() (bool, any) {
		out, _ := r.quell("journal", "--config", r.config)
		return has(out, "joined: web-1 (with the join token web", "refused to join: join token web: ", "another key", "used up"), out
	})
	if out, _ := r.quell("join-token", "list", "--config", r.config); !has(out, "web", "1 of 1", "used up") {
		t.Error(out)
	}
}

// shortLived lets credentials end after two seconds.
func (r *rig) shortLived() {
	r.t.Helper()
	path := filepath.Join(r.dir, "data", "credentials", "tokens.json")
	var list []auth.Token
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	list[0].LifetimeS = 2
	if data, err = json.Marshal(list); err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// machine writes the configuration of a machine that joins, with a folder of its own.
func (r *rig) machine(name, instance string) (config string) {
	r.t.Helper()
	text := strings.Replace(r.text(r.config), "data: data", "data: "+name, 1)
	text = strings.Replace(text, `bus: {listen: "`+r.bus+`"}`, "agent: {instance: "+instance+`}
bus: {url: "nats://`+r.bus+`", join: web.join}`, 1)
	text = strings.Replace(text, "probe: {", `probe: {listen: "127.0.0.1:0", `, 1)
	config = filepath.Join(r.dir, name+".yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return config
}

func (r *rig) launchAgent(config string, more ...string) *proc {
	r.t.Helper()
	return r.launch("agent", exec.Command(quellProgram, append([]string{"agent", "--config", config}, more...)...))
}

// awaitReports waits until the controller gets readings of an instance from its agent.
func (r *rig) awaitReports(id string) {
	r.t.Helper()
	r.awaitStatus("readings of "+id, func(s controller.Status) bool {
		for _, in := range s.Instances {
			if in.ID == id && in.Utilization != nil && !in.Stale {
				return true
			}
		}
		return false
	})
}

// text is the content of a file, "" if it is not there.
func (r *rig) text(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}
