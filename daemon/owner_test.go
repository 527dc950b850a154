package daemon_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// rival is a second installation, with its own bus and data folder, that uses the same balancer as the first one.
func (r *rig) rival() *rig {
	r.t.Helper()
	other := newRig(r.t, "")
	text, err := os.ReadFile(r.config)
	if err != nil {
		r.t.Fatal(err)
	}
	config := strings.NewReplacer(r.dir, other.dir, r.metrics, other.metrics, r.bus, other.bus).Replace(string(text))
	config = regexp.MustCompile(`log: "?127[0-9.:]*"?`).ReplaceAllString(config, fmt.Sprintf("log: %q", need.FreeAddress(r.t)))
	if err := os.WriteFile(other.config, []byte(config), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return other
}

// ready requests the controller's /readyz.
func (r *rig) ready() (status int, text string) {
	resp, err := http.Get("http://" + r.metrics + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body := make([]byte, 1000)
	n, _ := resp.Body.Read(body)
	return resp.StatusCode, string(body[:n])
}

// Two controllers that do not know of each other use one balancer. The first keeps control, also after a crash. The
// second changes nothing, says so, and takes over when the first has stopped.
func TestASecondControllerIsRefused(t *testing.T) {
	t.Parallel()
	for name, service := range map[string]func(*testing.T) *rig{"built-in balancer": emulatedService, "HAProxy": haproxyService} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := service(t)
			first := 0
			for i, p := range r.procs {
				if p.name == "controller" {
					first = i
				}
			}
			load := flow(r)
			other := r.rival()
			rival := other.start("controller")
			refused := func(s controller.Status) bool {
				return s.Leading && strings.Contains(s.Refused, "obeys another controller, ")
			}
			s := other.awaitStatus("the second to be refused", refused)
			if !strings.Contains(s.Refused, filepath.Join(r.dir, "data")) || strings.Contains(rival.said(), "started the first instances") {
				t.Errorf("%s\n%s", s.Refused, rival.said())
			}
			goesOn := func(when string) {
				t.Helper()
				r.decidesOn(6)
				other.decidesOn(2)
				mine, err := r.status()
				theirs, err2 := other.status()
				if err != nil || err2 != nil || mine.Refused != "" || !refused(theirs) || theirs.Decisions > 0 || len(mine.Instances) < 2 {
					t.Errorf("%s: %+v, %v; the second: %+v, %v", when, mine, err, theirs, err2)
				}
			}
			goesOn("at first")
			if status, text := other.ready(); status != http.StatusServiceUnavailable || !strings.Contains(text, "obeys another controller") {
				t.Errorf("the second's /readyz: %d %s", status, text)
			}
			if out, _ := other.quell("status", "--config", other.config); !has(out, "changes nothing", "obeys another controller") {
				t.Errorf("its status says\n%s", out)
			}
			r.procs[first].kill(t)
			r.start("controller")
			r.awaitStatus("the first to be back", func(s controller.Status) bool { return s.Leading && !s.At.IsZero() })
			goesOn("after a crash of the first")
			load.wantNoFailuresBut(r)

			back := r.procs[len(r.procs)-1]
			if err := back.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			back.ends(t)
			began := time.Now()
			other.awaitStatus("the second to take over", func(s controller.Status) bool { return s.Leading && s.Refused == "" })
			if took := time.Since(began); took > 10*time.Second {
				t.Logf("it took %v, though the first gave the balancer free", took)
			}
		})
	}
}
