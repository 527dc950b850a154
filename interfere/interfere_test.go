package interfere

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// child makes this test an interferer: its arguments say with what.
const child = "QUELL_TEST_INTERFERER"

func TestMain(m *testing.M) {
	if r := os.Getenv(child); r != "" {
		o := Options{Resource: quell.Resource(r), Use: 0.1, Cores: 1, Operations: 20, Folder: os.Getenv(child + "_FOLDER"), Lasts: time.Minute}
		if err := Run(context.Background(), o, os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func start(t *testing.T, r quell.Resource) *Child {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), child+"="+string(r), child+"_FOLDER=.")
	c, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Each interferer uses its resource, and says how much. The disk's needs a disk.
func TestInterferersUseTheirResource(t *testing.T) {
	for _, r := range []quell.Resource{quell.CPU, quell.Memory} {
		c := start(t, r)
		deadline := time.Now().Add(time.Minute)
		for used := 0.0; used < 0.01; {
			var err error
			if used, err = c.Used(time.Minute); err != nil {
				t.Fatalf("%s: %v", r, err)
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: it has used %v s of a processor in a minute", r, used)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// The process ends when its input is closed, as the kernel does when its parent is killed, when its time is over, and by a kill, which is
// an error at the next question.
func TestAnInterfererEnds(t *testing.T) {
	c := start(t, quell.CPU)
	c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("without its parent: %v", err)
	}
	c = start(t, quell.CPU)
	if _, err := c.Used(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("at the end of its time: %v", err)
	}
	c = start(t, quell.CPU)
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Used(time.Minute); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("after a kill: %v", err)
	}
}

// A resource that cannot be disturbed is said at the start, in the interferer's words.
func TestAnInterfererThatCannotStart(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), child+"=disk", child+"_FOLDER=/proc/nothing")
	if _, err := Start(cmd); err == nil || !strings.Contains(err.Error(), "interfering with the disk") {
		t.Errorf("a folder that cannot be: %v", err)
	}
}

// broken is an output that takes nothing, as a full disk.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// An interferer that cannot say that it is ready ends, and does not go on unseen.
func TestAnInterfererThatCannotAnswer(t *testing.T) {
	ended := make(chan error)
	go func() {
		ended <- Run(t.Context(), Options{Resource: quell.CPU, Use: 0.1, Cores: 1, Lasts: time.Hour}, strings.NewReader(""), broken{})
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, syscall.ENOSPC) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

func TestBadOptions(t *testing.T) {
	good := Options{Resource: quell.CPU, Use: 0.5, Cores: 2, Lasts: time.Second}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for why, change := range map[string]func(*Options){
		"no use":             func(o *Options) { o.Use = 0 },
		"not a number":       func(o *Options) { o.Use = math.NaN() },
		"more than all":      func(o *Options) { o.Use = 1.1 },
		"no time":            func(o *Options) { o.Lasts = 0 },
		"no processors":      func(o *Options) { o.Cores = 0 },
		"absurd":             func(o *Options) { o.Cores = 1e9 },
		"the network":        func(o *Options) { o.Resource = quell.Network },
		"a disk of no speed": func(o *Options) { o.Resource = quell.Disk },
	} {
		o := good
		change(&o)
		if user := (*quell.UserError)(nil); !errors.As(o.Check(), &user) {
			t.Errorf("%s: %v", why, o.Check())
		}
	}
	if err := Run(context.Background(), good, strings.NewReader("soon\n"), io.Discard); err == nil {
		t.Error("a line that is no time is accepted")
	}
	var out bytes.Buffer
	if err := Run(context.Background(), good, strings.NewReader("1\n"), &out); err != nil || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("%v, it said %q", err, out.String())
	}
}

// Work takes the asked share of the time, in bursts of some milliseconds.
func TestBurstsHaveTheAskedShare(t *testing.T) {
	for _, use := range []float64{0.05, 0.5, 0.95, 1} {
		b := bursts{rng: rand.New(rand.NewPCG(1, 2)), use: use}
		var work, rest time.Duration
		for range 20_000 {
			w, r := b.next()
			work, rest = work+w, rest+r
		}
		if got := work.Seconds() / (work + rest).Seconds(); math.Abs(got-use) > 0.01 {
			t.Errorf("use %v: the bursts have %.3f", use, got)
		}
	}
}
