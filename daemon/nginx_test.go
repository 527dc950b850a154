package daemon_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quellhq/quell/balancer/nginx/accesslog"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// nginxService starts the service of examples/haproxy behind an nginx: the controller starts two machines and gives them to nginx.
func nginxService(t *testing.T) (r *rig, start *exec.Cmd) {
	t.Helper()
	program := need.Program(t, "nginx")
	r = newRig(t, "")
	file := func(name string) string { return filepath.Join(r.dir, name) }
	text, err := os.ReadFile(filepath.Join("..", "examples", "haproxy", "quell.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "balancer:\n")
	_, after, _ := strings.Cut(rest, "scaler:\n")
	places := strings.NewReplacer(
		"/var/lib/quell", file("data"), "127.0.0.1:9464", r.metrics, "127.0.0.1:4222", r.bus, "service: files", "service: shop",
		"[quell, host, --config, quell.yaml", "["+quellProgram+", host, --config, "+r.config,
		"sampling: 1s", "sampling: "+sampling.String(), "guard: {stale_after: 5}", "guard: {stale_after: 10}",
		"budget: 2%", "timeout: 300ms", "linger: 30s", "lifeline: true", // nothing may outlive this test
	)
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;"
	}
	conf := fmt.Sprintf(`daemon off; %s
worker_processes 2;
worker_shutdown_timeout 5s;
pid %[2]s/nginx.pid;
events {}
http {
  %[3]s
  client_body_temp_path %[2]s/body; proxy_temp_path %[2]s/proxy; fastcgi_temp_path %[2]s/fastcgi;
  uwsgi_temp_path %[2]s/uwsgi; scgi_temp_path %[2]s/scgi;
  upstream files { zone files 64k; least_conn; include %[2]s/servers.conf; }
  server {
    listen %[4]s;
    access_log syslog:server=unix:%[2]s/log.sock,nohostname quell;
    location / { proxy_pass http://files; proxy_connect_timeout 1s; }
  }
}
`, user, r.dir, accesslog.Format, r.traffic)
	service := places.Replace(before) + fmt.Sprintf(`balancer:
  kind: nginx
  drain: 10s
  health: {path: /healthz, interval: 100ms}
  nginx:
    include: %[1]s/servers.conf
    pid: %[1]s/nginx.pid
    log: %[1]s/log.sock
    reload_every: 200ms
    test: [%[2]s, -t, -q, -c, %[1]s/nginx.conf, -e, %[1]s/error.log]
scaler:
`, r.dir, program) + places.Replace(after)
	files := map[string]string{file("nginx.conf"): conf, file("servers.conf"): "server 127.0.0.1:9 down;\n", r.config: service}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, status := r.quell("config", "check", r.config); status != 0 {
		t.Fatalf("the configuration: %s", out)
	}
	t.Cleanup(func() {
		if said, err := os.ReadFile(file("error.log")); err == nil && t.Failed() {
			t.Logf("nginx said\n%s", said)
		}
	})
	start = exec.Command(program, "-c", file("nginx.conf"), "-e", file("error.log"))
	start.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return r, start
}

// TestNginx runs the whole loop: machines start behind nginx and serve, requests in nginx's log are measured, a killed machine is replaced
// and its line removed, and a person's edit holds an instance.
func TestNginx(t *testing.T) {
	t.Parallel()
	r, start := nginxService(t)
	front := r.launch("nginx", start)
	r.start("controller")
	r.awaitServing("i1", "i2")
	load := flow(r)
	load.more(50)
	r.awaitStatus("response times and probes", func(s controller.Status) bool {
		for _, in := range s.Instances {
			if in.LatencyMS == nil || in.RequestRate == nil || *in.RequestRate == 0 {
				return false
			}
		}
		return len(s.Instances) == 2
	})
	if err := syscall.Kill(r.pids()["i2"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.awaitServing("i1", "i3")
	load.failures() // requests to the killed machine may fail
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	r.await("50 requests without a failure", func() (bool, any) { // nginx may cut an answer when it is reloaded: docs/balancers/nginx.md
		for range 50 {
			if why := ask(client, "http://"+r.traffic+"/file"); why != "" {
				return false, why
			}
		}
		return true, nil
	})

	servers := filepath.Join(r.dir, "servers.conf")
	text, err := os.ReadFile(servers)
	if err != nil || strings.Count(string(text), "server ") != 2 || strings.Contains(string(text), "down") {
		t.Fatalf("%v: the file is\n%s", err, text)
	}
	first, rest, _ := strings.Cut(string(text), ";\n")
	if err := os.WriteFile(servers, []byte(first+" down;\n"+rest), 0o644); err != nil {
		t.Fatal(err)
	}
	r.awaitStatus("the hold", func(s controller.Status) bool {
		return len(s.Instances) > 1 && s.Instances[0].Held != nil && s.Instances[0].Held.By == "nginx"
	})
	if out, status := r.quell("undrain", "--config", r.config, "i1"); status != 0 {
		t.Fatal(out)
	}
	r.awaitStatus("i1 to serve again", func(s controller.Status) bool { // beside i3, and perhaps another one that took its place
		return len(s.Instances) > 1 && s.Instances[0].Held == nil && s.Instances[0].Weight != nil && *s.Instances[0].Weight > 0
	})
	front.stop(t)
	r.awaitStatus("the controller to notice", func(s controller.Status) bool { return s.Failures["look"] > 0 })
}
