package packaging

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quellhq/quell/internal/need"
)

// haproxyConfig is what a person has before Quell comes.
const haproxyConfig = `global
	log /dev/log local0
	stats socket /run/haproxy/admin.sock mode 660 level admin
	user haproxy
	group haproxy
defaults
	log global
	mode http
	option httplog
	timeout connect 1s
	timeout client 30s
	timeout server 30s
frontend web
	bind :80
	default_backend app
backend app
	balance leastconn
	option httpchk GET /
	server web-1 127.0.0.1:8001 check inter 1s
	server web-2 127.0.0.1:8002 check inter 1s
`

const nginxConfig = `user www-data;
pid /run/nginx.pid;
events {}
http {
	access_log off;
	server { listen 8001; listen 8002; root /var/www/html; }
}
`

// tenCommands are the commands of the guide.
func tenCommands(t *testing.T) []string {
	t.Helper()
	guide, err := os.ReadFile("../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- test: TestTenCommands -->\n```sh\n(.*?)\n```").FindSubmatch(guide)
	if block == nil {
		t.Fatal("the guide has no block of TestTenCommands")
	}
	commands := strings.Split(string(block[1]), "\n")
	if len(commands) > 10 {
		t.Fatalf("%d commands: at most ten", len(commands))
	}
	for i, c := range commands {
		if !strings.HasPrefix(c, "sudo ") || strings.Contains(c, "&&") {
			t.Fatalf("%q: one command a line, with sudo", c)
		}
		commands[i] = strings.TrimPrefix(c, "sudo ")
	}
	return commands
}

// TestTenCommands runs the guide's commands on a machine with HAProxy, nginx and Prometheus: from the package to a service that Quell
// acts on, its page with a log-in, its metrics and its alerts in Prometheus.
func TestTenCommands(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"haproxy", "nginx", "prometheus", "apt-get", "curl"} {
		need.Program(t, name)
	}
	m := newMachine(t, "web-1")
	m.write("/etc/haproxy/haproxy.cfg", haproxyConfig)
	m.write("/etc/nginx/nginx.conf", nginxConfig)
	m.write("/var/www/html/index.html", "served")
	m.run("install -d -o prometheus /var/lib/prometheus/metrics2 && systemctl start haproxy nginx prometheus")

	deb := only(t, release(t)+"/*.deb")
	data, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	m.write(filepath.Join("/root", filepath.Base(deb)), string(data))
	said := ""
	for _, c := range tenCommands(t) {
		said = m.run(c)
	}

	t.Run("the service is acted on", func(t *testing.T) {
		m.until("readings of the agent, and response times by HAProxy's log", func() bool {
			if answer := m.run("for i in $(seq 20); do curl -sf http://127.0.0.1/; done"); answer != strings.Repeat("served", 20) {
				t.Fatalf("HAProxy answers %q", answer)
			}
			var status struct {
				Mode      string
				Leading   bool
				Instances []struct {
					Stale     bool
					LatencyMS *float64 `json:"latency_ms"`
				}
			}
			if err := json.Unmarshal([]byte(m.run("quell status --json")), &status); err != nil {
				t.Fatal(err)
			}
			return status.Mode == "act" && status.Leading && len(status.Instances) == 2 && !status.Instances[0].Stale &&
				status.Instances[0].LatencyMS != nil
		})
		m.run("quell override web-1 20%")
		m.until("the weights of an order at HAProxy", func() bool {
			one, two := weight(t, m, "web-1"), weight(t, m, "web-2")
			return one > 0 && two == 4*one
		})
	})
	t.Run("the page", func(t *testing.T) {
		address, ticket, ok := strings.Cut(strings.TrimSpace(said), "#ticket=")
		if !ok {
			t.Fatalf("quell page: %s", said)
		}
		if page := m.run("curl -sf " + address); !strings.Contains(page, "<title>") {
			t.Errorf("the page: %s", page)
		}
		got := m.run(`curl -sf -H 'Content-Type: application/json' -d '{"ticket":"` + ticket + `"}' ` + address + `page/login`)
		if !strings.Contains(got, `"by"`) {
			t.Errorf("log-in: %s", got)
		}
	})
	t.Run("Prometheus", func(t *testing.T) {
		ask := func(what string) string { return m.run("curl -sf 'http://127.0.0.1:9090/api/v1/" + what + "'") }
		m.until("metrics in Prometheus", func() bool { return strings.Contains(ask("query?query=quell_decisions_total"), `"value"`) })
		rules := ask("rules")
		if !strings.Contains(rules, "QuellObjectiveMissed") {
			t.Errorf("rules: %s", rules)
		}
	})
	if states, err := m.try("systemctl is-active quell-controller quell-agent haproxy nginx prometheus"); err != nil {
		t.Errorf("quell-controller, quell-agent, haproxy, nginx and prometheus are %q", strings.Fields(states))
	}
	t.Run("a token for other machines", func(t *testing.T) {
		m.run("quell init 10.0.0.1:80 10.0.0.2:80 --force --out /etc/quell/quell.yaml") // nobody answers there
		if owner := m.run("stat -c '%U %a' /etc/quell/token"); owner != "quell 600\n" {
			t.Errorf("the units' user must read the token, which belongs to %s", owner)
		}
	})
}

// weight asks HAProxy for a server's weight.
func weight(t *testing.T, m machine, server string) (of int) {
	t.Helper()
	conn, err := net.Dial("unix", m.path("/run/haproxy/admin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "get weight app/%s\n", server); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscan(conn, &of); err != nil {
		t.Fatal(err)
	}
	return of
}
