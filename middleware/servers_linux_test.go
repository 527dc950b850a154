package middleware

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/loadgen"
)

// These tests change the parameters of real servers under load.

const (
	retunes  = 50
	loadRate = 200 // requests per second
)

// site is a folder with servers' files, which their processes can read whatever their user is.
func site(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	need.Root(t)
	dir, err := os.MkdirTemp("", "quell-site")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		text = strings.ReplaceAll(text, "DIR", dir)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// launch runs a server until the test ends.
func launch(t *testing.T, dir string, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	log, err := os.Create(filepath.Join(dir, filepath.Base(argv[0])+".out"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()
		if t.Failed() {
			for _, name := range []string{log.Name(), filepath.Join(dir, "error.log")} {
				text, _ := os.ReadFile(name)
				t.Logf("%s: %s", name, text[max(0, len(text)-3000):])
			}
		}
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(need.FreeAddress(t))
	return port
}

// await waits until a server answers as it should.
func await(t *testing.T, url, want string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got := get(url); got == want {
			return
		}
	}
	t.Fatalf("%s does not answer %q, but %q", url, want, get(url))
}

func get(url string) string {
	answer, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return fmt.Sprint(string(body), err)
}

// endless is a schedule that can be ended.
type endless struct {
	loadgen.Schedule
	ended atomic.Bool
}

func (e *endless) Next() (time.Duration, bool) {
	at, ok := e.Schedule.Next()
	return at, ok && !e.ended.Load()
}

// underLoad runs work while requests arrive, and fails if one of them fails.
func underLoad(t *testing.T, url string, paths []string, work func()) {
	t.Helper()
	arrivals, err := loadgen.NewArrivals(loadgen.ArrivalOptions{
		Process: loadgen.Poisson, Rate: []loadgen.Step{{PerSecond: loadRate}}, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	schedule := &endless{Schedule: arrivals}
	var failures []string
	runner, err := loadgen.New(loadgen.Options{
		URL: url, Arrivals: schedule, PathOf: func(n int64) string { return paths[n%int64(len(paths))] },
		Timeout: 3 * patience, // a child of php-fpm that misses its signal holds a reload up for process_control_timeout, 10 s here
		Report: func(s loadgen.Sample) {
			if s.Failed() {
				failures = append(failures, fmt.Sprintf("at %v: status %d, %v", s.Sent.Round(time.Millisecond), s.Status, s.Err))
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	var summary loadgen.Summary
	running.Go(func() { summary = runner.Run(t.Context()) })
	began := time.Now()
	work()
	took := time.Since(began)
	schedule.ended.Store(true)
	running.Wait()
	if summary.Errors > 0 || len(failures) > 0 {
		t.Errorf("%d of %d requests failed: %s", summary.Errors, summary.Requests, strings.Join(failures[:min(5, len(failures))], "; "))
	}
	if summary.Requests < int64(took.Seconds()*loadRate/2) {
		t.Errorf("only %d requests in %v", summary.Requests, took)
	}
	t.Logf("%d requests in %v, none failed", summary.Requests, took.Round(time.Millisecond))
}

func openServer(t *testing.T, kind Kind, s Settings) *Driver {
	t.Helper()
	s.server = kind.Defaults().server
	d, err := Open(t.Context(), Server{Kind: kind.Name, Settings: &s}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// retune sets a parameter and waits until it is read back.
func retune(t *testing.T, d *Driver, name string, value float64) {
	t.Helper()
	if err := d.Set(t.Context(), name, value); err != nil {
		t.Errorf("%s %g: %v", name, value, err)
		return
	}
	var got map[string]float64
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got, err = d.InForce(t.Context()); err == nil && got[name] == value {
			return
		}
	}
	t.Errorf("%s %g: in force is %v, %v", name, value, got, err)
}

func closeServer(t *testing.T, d *Driver, path, want string) {
	t.Helper()
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not restored: %s, %v", path, got, err)
	}
}

const apacheModules = "/usr/lib/apache2/modules/"

func TestApacheAndPHPUnderLoad(t *testing.T) {
	apache := need.Program(t, "apache2")
	found, _ := filepath.Glob("/usr/sbin/php-fpm*")
	if len(found) == 0 {
		need.Skip(t, "needs php-fpm: on Debian, apt-get install php-fpm")
	}
	fpm, port := found[0], freePort(t)
	load := ""
	for _, m := range []string{"mpm_event", "authz_core", "proxy", "proxy_fcgi"} {
		load += "LoadModule " + m + "_module " + apacheModules + "mod_" + m + ".so\n"
	}
	dir := site(t, map[string]string{
		"apache.conf": load + `ServerRoot DIR
ServerName localhost
PidFile DIR/apache.pid
ErrorLog DIR/error.log
Listen 127.0.0.1:` + port + `
User nobody
Group nogroup
ServerLimit 16
ThreadsPerChild 25
KeepAlive On
Include DIR/mods/*.conf
DocumentRoot DIR/www
<FilesMatch \.php$>
  SetHandler "proxy:unix:DIR/fpm.sock|fcgi://localhost"
</FilesMatch>
`,
		"mods/mpm.conf":       "<IfModule mpm_event_module>\n  MaxRequestWorkers 100\n</IfModule>\n",
		"mods/keepalive.conf": "KeepAliveTimeout 5\n",
		"php.conf": `[global]
pid = DIR/fpm.pid
error_log = DIR/fpm.log
process_control_timeout = 10s
[www]
user = nobody
group = nogroup
listen = DIR/fpm.sock
listen.mode = 0666
pm = dynamic
pm.max_children = 8
pm.start_servers = 2
pm.min_spare_servers = 1
pm.max_spare_servers = 4
`,
		"www/page.html": "a page\n", "www/page.php": "<?php usleep(5000); echo 'a program';",
	})
	path := func(name string) string { return filepath.Join(dir, name) }
	launch(t, dir, apache, "-f", path("apache.conf"), "-DFOREGROUND")
	launch(t, dir, fpm, "-F", "-n", "-y", path("php.conf"))
	url := "http://127.0.0.1:" + port
	await(t, url+"/page.html", "a page\n<nil>")
	await(t, url+"/page.php", "a program<nil>")

	web := openServer(t, Apache, Settings{PID: path("apache.pid"), Check: []string{apache, "-t", "-f", path("apache.conf")},
		Parameters: []Parameter{
			{Name: "MaxRequestWorkers", Min: 25, Max: 400, File: path("mods/mpm.conf")},
			{Name: "KeepAliveTimeout", Min: 1, Max: 15, File: path("mods/keepalive.conf")},
		}})
	php := openServer(t, PHPFPM, Settings{PID: path("fpm.pid"), Check: []string{fpm, "-n", "-t", "-y", "{file}"}, File: path("php.conf"),
		Parameters: []Parameter{{Name: "pm.max_children", Min: 1, Max: 50}}})
	original, err := os.ReadFile(path("php.conf"))
	if err != nil {
		t.Fatal(err)
	}
	underLoad(t, url, []string{"/page.html", "/page.php"}, func() {
		var both sync.WaitGroup
		both.Go(func() {
			for i := range retunes / 2 {
				retune(t, web, "MaxRequestWorkers", float64(100+25*(i%3+1)))
				retune(t, web, "KeepAliveTimeout", float64(6+i%5))
			}
		})
		both.Go(func() {
			for i := range retunes {
				retune(t, php, "pm.max_children", float64(10+i%7))
			}
		})
		both.Wait()
		if err := php.Set(t.Context(), "pm.max_children", 2); err == nil || !strings.Contains(err.Error(), "check does not accept") {
			t.Errorf("fewer children than spare ones: %v", err)
		}
	})
	closeServer(t, web, path("mods/mpm.conf"), "<IfModule mpm_event_module>\n  MaxRequestWorkers 100\n</IfModule>\n")
	closeServer(t, php, path("php.conf"), string(original))
	await(t, url+"/page.php", "a program<nil>")
	log, err := os.ReadFile(path("error.log"))
	if n := strings.Count(string(log), "SIGUSR1 received"); err != nil || n < retunes/2 {
		t.Errorf("Apache restarted %d times, %v", n, err)
	}
}

// nginxFiles is a configuration of nginx with two workers.
func nginxFiles(port string) map[string]string {
	return map[string]string{
		"nginx.conf": `user nobody nogroup;
worker_processes 2;
pid DIR/nginx.pid;
error_log DIR/error.log;
events { worker_connections 512; }
http {
  access_log off;
  keepalive_timeout 5;
  client_body_temp_path DIR/tmp; proxy_temp_path DIR/tmp; fastcgi_temp_path DIR/tmp; uwsgi_temp_path DIR/tmp; scgi_temp_path DIR/tmp;
  server { listen 127.0.0.1:` + port + `; root DIR/www; }
}
`,
		"www/page.html": "a page\n", "tmp/none": "",
	}
}

func TestNginxUnderLoad(t *testing.T) {
	nginx, port := need.Program(t, "nginx"), freePort(t)
	dir := site(t, nginxFiles(port))
	config, pid := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "nginx.pid")
	launch(t, dir, nginx, "-c", config, "-g", "daemon off;")
	url := "http://127.0.0.1:" + port
	await(t, url+"/page.html", "a page\n<nil>")
	d := openServer(t, Nginx, Settings{PID: pid, Check: []string{nginx, "-t", "-c", config}, File: config,
		Parameters: []Parameter{{Name: "worker_processes", Min: 1, Max: 8}, {Name: "worker_connections", Min: 64, Max: 4096}}})
	original, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	underLoad(t, url, []string{"/page.html"}, func() {
		for i := range retunes / 2 {
			retune(t, d, "worker_processes", float64(3+i%2))
			retune(t, d, "worker_connections", float64(600+i))
		}
	})
	closeServer(t, d, config, string(original))
	await(t, url+"/page.html", "a page\n<nil>")
}

// TestNginxWithAutomaticWorkers checks that the number of workers before a change may come back, and that the word is back then.
func TestNginxWithAutomaticWorkers(t *testing.T) {
	nginx, port := need.Program(t, "nginx"), freePort(t)
	files := nginxFiles(port)
	files["nginx.conf"] = strings.Replace(files["nginx.conf"], "worker_processes 2", "worker_processes auto", 1)
	dir := site(t, files)
	config := filepath.Join(dir, "nginx.conf")
	launch(t, dir, nginx, "-c", config, "-g", "daemon off;")
	await(t, "http://127.0.0.1:"+port+"/page.html", "a page\n<nil>")
	d := openServer(t, Nginx, Settings{PID: filepath.Join(dir, "nginx.pid"), Check: []string{nginx, "-t", "-c", config}, File: config,
		Parameters: []Parameter{{Name: "worker_processes", Min: 1, Max: 1}}})
	before, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	online, err := exec.Command("getconf", "_NPROCESSORS_ONLN").Output() // so many workers nginx starts, one after the other
	if err != nil {
		t.Fatal(err)
	}
	auto, err := strconv.ParseFloat(strings.TrimSpace(string(online)), 64)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		has, err := d.InForce(t.Context())
		if err == nil && has["worker_processes"] == auto {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nginx shows %v, %v; want %v workers", has, err, auto)
		}
	}
	d.Parameters[0] = Parameter{Name: "worker_processes", Min: auto + 1, Max: auto + 2}
	retune(t, d, "worker_processes", auto+2)
	retune(t, d, "worker_processes", auto)
	if after, err := os.ReadFile(config); err != nil || string(after) != string(before) {
		t.Errorf("the original is not back: %s, %v", after, err)
	}
	closeServer(t, d, config, string(before))
}

// TestAReloadThatFailsAlthoughTheCheckPasses makes nginx listen on a port that is in use, which its check does not mind.
func TestAReloadThatFailsAlthoughTheCheckPasses(t *testing.T) {
	nginx, port := need.Program(t, "nginx"), freePort(t)
	files := nginxFiles(port)
	files["nginx.tmpl"] = strings.Replace(files["nginx.conf"], "listen 127.0.0.1:"+port, "listen 127.0.0.1:{{.port}}", 1)
	dir := site(t, files)
	config := filepath.Join(dir, "nginx.conf")
	launch(t, dir, nginx, "-c", config, "-g", "daemon off;")
	url := "http://127.0.0.1:" + port
	await(t, url+"/page.html", "a page\n<nil>")
	before, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	kind := *Nginx.Defaults().server
	kind.line = nil // from a template
	d := openServer(t, kindOf(&kind, ""), Settings{PID: filepath.Join(dir, "nginx.pid"), Check: []string{nginx, "-t", "-c", config},
		File: config, Template: filepath.Join(dir, "nginx.tmpl"), Parameters: []Parameter{{Name: "port", Max: 65535}}})
	err = d.Set(t.Context(), "port", float64(taken.Addr().(*net.TCPAddr).Port))
	if err == nil || !strings.Contains(err.Error(), "so the old one is back and in force: nginx still has its old workers") {
		t.Errorf("%v", err)
	}
	if after, err := os.ReadFile(config); err != nil || string(after) != string(before) {
		t.Errorf("the file is changed: %s, %v", after, err)
	}
	await(t, url+"/page.html", "a page\n<nil>")
	closeServer(t, d, config, string(before))
}

// TestABrokenTemplateOfARealServer checks that nginx refuses what a broken template makes, and goes on as before.
func TestABrokenTemplateOfARealServer(t *testing.T) {
	nginx, port := need.Program(t, "nginx"), freePort(t)
	files := nginxFiles(port)
	files["nginx.tmpl"] = strings.Replace(files["nginx.conf"], "worker_processes 2", "worker_processes {{.workers}}", 1)
	dir := site(t, files)
	config, template := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "nginx.tmpl")
	launch(t, dir, nginx, "-c", config, "-g", "daemon off;")
	url := "http://127.0.0.1:" + port
	await(t, url+"/page.html", "a page\n<nil>")
	d := openServer(t, Template, Settings{PID: filepath.Join(dir, "nginx.pid"), Check: []string{nginx, "-t", "-c", config}, File: config,
		Template: template, Reload: []string{nginx, "-c", config, "-s", "reload"},
		Parameters: []Parameter{{Name: "workers", Min: 1, Max: 8, Initial: 2}}})
	before, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(template)
	if err != nil {
		t.Fatal(err)
	}
	included := filepath.Join(dir, "included.conf")
	if err := os.WriteFile(included, []byte("worker_process 1;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	underLoad(t, url, []string{"/page.html"}, func() {
		for what, more := range map[string]string{"template": "worker_process {{.workers}};\n", "included file": "include " + included + ";\n"} {
			if err := os.WriteFile(template, slices.Concat(good, []byte(more)), 0o644); err != nil {
				t.Fatal(err)
			}
			err := d.Set(t.Context(), "workers", 3)
			if err == nil || !strings.Contains(err.Error(), `unknown directive "worker_process"`) {
				t.Errorf("a broken %s: %v", what, err)
			}
		}
	})
	if after, err := os.ReadFile(config); err != nil || string(after) != string(before) {
		t.Errorf("the file is changed: %s, %v", after, err)
	}
	if err := os.WriteFile(template, good, 0o644); err != nil {
		t.Fatal(err)
	}
	retune(t, d, "workers", 3)
	closeServer(t, d, config, string(before))
}

// Apache's own httpd-mpm.conf sets MaxRequestWorkers once for each multi-processing module. The block of the running one is changed.
func TestApacheWithItsStockFile(t *testing.T) {
	apache, port := need.Program(t, "apache2"), freePort(t)
	load := ""
	for _, m := range []string{"mpm_worker", "authz_core"} {
		load += "LoadModule " + m + "_module " + apacheModules + "mod_" + m + ".so\n"
	}
	dir := site(t, map[string]string{
		"apache.conf": load + "ServerRoot DIR\nServerName localhost\nErrorLog DIR/error.log\nListen 127.0.0.1:" + port +
			"\nUser nobody\nGroup nogroup\nServerLimit 16\nInclude DIR/httpd-mpm.conf\nDocumentRoot DIR/www\n",
		"httpd-mpm.conf": stockMPM, "www/index.html": "hello",
	})
	file := filepath.Join(dir, "httpd-mpm.conf")
	s := Server{Kind: "apache", Settings: Apache.Defaults()}
	s.Settings.File, s.Settings.PID = file, filepath.Join(dir, "apache.pid")
	s.Settings.Check = []string{apache, "-t", "-f", filepath.Join(dir, "apache.conf")}
	s.Settings.Parameters = []Parameter{{Name: "MaxRequestWorkers", Min: 25, Max: 400}}
	d, err := Open(t.Context(), s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("before the server runs: %v", err)
	}
	if values, err := d.InForce(t.Context()); err == nil {
		t.Errorf("in force while the server does not run: %v", values)
	}
	launch(t, dir, apache, "-D", "FOREGROUND", "-f", filepath.Join(dir, "apache.conf"))
	await(t, "http://127.0.0.1:"+port+"/index.html", "hello<nil>")
	if err := d.Set(t.Context(), "MaxRequestWorkers", 200); err != nil {
		t.Fatal(err)
	}
	if values, err := d.InForce(t.Context()); err != nil || values["MaxRequestWorkers"] != 200 {
		t.Errorf("in force: %v, %v", values, err)
	}
	text, err := os.ReadFile(file)
	if want := strings.ReplaceAll(strings.Replace(stockMPM, "400", "200", 1), "DIR", dir); err != nil || string(text) != want {
		t.Errorf("the file has %s, %v", text, err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
