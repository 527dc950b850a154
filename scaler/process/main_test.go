package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// The test binary is also the program of the instances and of a controller that is killed.
const (
	roleEnv   = "PROCESS_TEST_ROLE"
	quickExit = "GORACE=atexit_sleep_ms=0" // otherwise the race detector waits a second at every exit
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "instance":
		runInstance(os.Args[1], os.Args[2:])
	case "controller":
		runController(os.Args[1], os.Args[2])
	default:
		os.Exit(m.Run())
	}
}

// runInstance is an instance; mode selects its misbehaviour.
func runInstance(mode string, args []string) {
	time.AfterFunc(time.Minute, func() { os.Exit(9) }) // ends the process even if the test hangs
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	go func() {
		<-terms
		if mode != "stubborn" {
			os.Exit(0)
		}
	}()
	go followLifeline()
	switch mode {
	case "broken":
		fmt.Println("cannot go on")
		os.Exit(4)
	case "mute":
		select {}
	}
	child := ""
	if mode == "parent" {
		c := exec.Command(os.Args[0], "mute")
		if err := c.Start(); err != nil {
			panic(err)
		}
		child = strconv.Itoa(c.Process.Pid)
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if mode == "named" && (r.Host != "shop.example" || r.Header.Get("X-Forwarded-Proto") != "https") {
			w.WriteHeader(http.StatusBadRequest)
		}
		fmt.Fprint(w, args)
	})
	http.HandleFunc("/child", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, child) })
	http.HandleFunc("/crash", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	fmt.Println(http.ListenAndServe("127.0.0.1:"+args[0], nil))
	os.Exit(5)
}

func followLifeline() {
	fd, err := strconv.Atoi(os.Getenv("QUELL_LIFELINE_FD"))
	if err != nil {
		return
	}
	io.Copy(io.Discard, os.NewFile(uintptr(fd), "lifeline"))
	os.Exit(0)
}

// runController starts two instances, prints a line when they are ready, and waits to be killed.
func runController(dir, mode string) {
	time.AfterFunc(time.Minute, func() { os.Exit(9) })
	d, err := New(options(dir, mode))
	if err != nil {
		panic(err)
	}
	if _, err := d.Start(context.Background(), 2); err != nil {
		panic(err)
	}
	for countState(d, quell.Ready) < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println("ready")
	select {}
}

func options(dir, mode string) Options {
	return Options{
		Command: []string{os.Args[0], mode, "{port}", "{id}", "{slot}", "{host}"},
		Env:     []string{roleEnv + "=instance", quickExit},
		Slots:   4,
		Dir:     dir,
		Drain:   10 * time.Second,
	}
}

// open calls New, and stops everything at the end of the test.
func open(t *testing.T, o Options) *Driver {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		d.Close(now, false)
	})
	return d
}

func start(t *testing.T, d *Driver, n int) []string {
	t.Helper()
	ids, err := d.Start(t.Context(), n)
	if err != nil || len(ids) != n {
		t.Fatalf("Start(%d) = %v, %v", n, ids, err)
	}
	return ids
}

func startReady(t *testing.T, d *Driver, n int) []string {
	t.Helper()
	ids := start(t, d, n)
	eventually(t, "ready", func() bool { return countState(d, quell.Ready) >= n })
	return ids
}

func members(t *testing.T, d *Driver) []quell.Member {
	t.Helper()
	m, err := d.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func countState(d *Driver, s quell.State) int {
	members, _ := d.Members(context.Background())
	n := 0
	for _, m := range members {
		if m.State == s {
			n++
		}
	}
	return n
}

// pids returns the pids of all listed instances, by id.
func pids(d *Driver) map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]int{}
	for _, r := range d.ledger.Instances {
		out[r.ID] = r.PID
	}
	return out
}

func isDead(pid int) bool {
	_, dead, err := identify(pid)
	return dead && (err == nil || errors.Is(err, os.ErrProcessDone))
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func get(t *testing.T, address, path string) string {
	t.Helper()
	resp, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// crash makes an instance exit, which also ends the connection.
func crash(address string) {
	if resp, err := http.Get("http://" + address + "/crash"); err == nil {
		resp.Body.Close()
	}
}
