package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/need"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// holderVariable makes the test program a process that keeps a lab with that prefix until it is killed.
const holderVariable = "QUELL_TEST_HOLDS_LAB"

func TestMain(m *testing.M) {
	if prefix := os.Getenv(holderVariable); prefix != "" {
		fmt.Println(hold(prefix, os.Getenv(holderVariable+"_DIR")))
		select {}
	}
	if os.Getenv(sensesVariable) != "" {
		if err := sense(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hold makes a lab with an interferer on each resource, and processes that continue when this one ends. It returns "held", or a text that
// says what failed.
func hold(prefix, dir string) string {
	l, err := New(Options{Prefix: prefix, Dir: dir, Hosts: []Host{{ID: "h1", Network: 50e6, Cores: 0.2}, {ID: "h2"}}})
	if err != nil {
		return err.Error()
	}
	if err := l.Machine("h1").Interfere(map[quell.Resource]float64{quell.Network: 0.1, quell.CPU: 0.5}); err != nil {
		return err.Error()
	}
	for _, role := range []Role{Client, Instance} {
		host := ""
		if role == Instance {
			host = "h2"
		}
		p, err := l.Place(host, role)
		if err != nil {
			return err.Error()
		}
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := p.Start(cmd); err != nil {
			return err.Error()
		}
	}
	return "held"
}

// A killed run leaves its namespaces, groups and processes. Clean removes them all, and nothing that only has a similar
// name.
func TestCleanAfterAKill(t *testing.T) {
	need.Root(t)
	need.Program(t, "iperf3")
	need.Program(t, "stress-ng")
	prefix := prefixOf(t)
	foreign := foreigners(t, prefix)
	before := rootLinks(t)

	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderVariable+"="+prefix, holderVariable+"_DIR="+t.TempDir())
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := Clean(prefix); err != nil {
			t.Error(err)
		}
	})
	var said string
	if _, err := fmt.Fscanln(out, &said); err != nil || said != "held" {
		t.Fatalf("the holder says %q, %v", said, err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()

	removed, err := Clean(prefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"(sleep)", "namespace " + prefix + "-net", "namespace " + prefix + "-h2-vm", base(prefix) + "/h1/nb-cpu",
		"folder " + RunDir(prefix)} {
		if !slices.ContainsFunc(removed, func(what string) bool { return strings.HasSuffix(what, want) }) {
			t.Errorf("Clean does not tell of %s: %v", want, removed)
		}
	}
	left := slices.DeleteFunc(traces(t, prefix), func(path string) bool { return slices.Contains(foreign.paths, path) })
	if len(left) > 0 {
		t.Errorf("Clean left %v", left)
	}
	if after := rootLinks(t); !slices.Equal(before, after) {
		t.Errorf("links of the machine's own network: %v, before %v", after, before)
	}
	foreign.mustBeThere(t)
	if again, err := Clean(prefix); err != nil || len(again) > 0 {
		t.Errorf("cleaning again removed %v, %v", again, err)
	}
}

// strangers have names that are similar to a lab's names but do not belong to a lab.
type strangers struct {
	paths   []string
	process *exec.Cmd
}

func foreigners(t *testing.T, prefix string) *strangers {
	t.Helper()
	s := &strangers{process: exec.Command("sleep", "1000")}
	for _, name := range []string{prefix + "-other", prefix + "x-net", prefix + "-h1-db", prefix + "-h999", "x" + prefix + "-net"} {
		if err := makeNamespace(name); err != nil {
			t.Fatal(err)
		}
		s.paths = append(s.paths, filepath.Join(namespaces, name))
		t.Cleanup(func() {
			if err := removeNamespace(name); err != nil {
				t.Error(err)
			}
		})
	}
	g, err := findGroups(machine)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{prefix, prefix + "x-lab", prefix + "-laboratory"} {
		folder := filepath.Join(g.cpu, name)
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		s.paths = append(s.paths, folder)
		t.Cleanup(func() {
			if err := removeGroup(folder); err != nil {
				t.Error(err)
			}
		})
	}
	if err := (Place{namespace: prefix + "-other"}).Start(s.process); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
	})
	return s
}

func (s *strangers) mustBeThere(t *testing.T) {
	t.Helper()
	for _, path := range s.paths {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("somebody else's: %v", err)
		}
	}
	if ended(s.process.Process.Pid) {
		t.Error("somebody else's process was ended")
	}
}

// If a late step fails (here, a limit for a disk that does not exist), everything that was made before is removed.
func TestNewRemovesWhatItMade(t *testing.T) {
	need.Root(t)
	o := Options{Prefix: prefixOf(t), Dir: "/dev/shm/" + prefixOf(t), Hosts: []Host{{ID: "h1", Network: 10e6}, {ID: "h2", DiskIOPS: 100}}}
	t.Cleanup(func() { _ = os.RemoveAll(o.Dir) })
	l, err := New(o)
	if err == nil {
		_ = l.Close()
	}
	if user := new(quell.UserError); !errors.As(err, &user) || !strings.Contains(err.Error(), "lies on no disk") {
		t.Errorf("got %v", err)
	}
	if left := traces(t, o.Prefix); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

// The root user of a user namespace lacks the necessary privileges. It gets a message, and nothing is left behind.
func TestRootOfAUserNamespace(t *testing.T) {
	need.Root(t)
	prefix := prefixOf(t)
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderVariable+"="+prefix, holderVariable+"_DIR="+t.TempDir())
	root := []syscall.SysProcIDMap{{Size: 1}}
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: root, GidMappings: root}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		need.Skip(t, fmt.Sprintf("needs user namespaces: %v", err))
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(said, "root lacks the privilege") {
		t.Errorf("it says %q, %v", said, err)
	}
	if left := traces(t, prefix); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	_ = holder.Process.Kill()
	_ = holder.Wait()
	if _, err := Clean(prefix); err != nil {
		t.Error(err)
	}
}

// If a run is killed after it made a namespace's file and before it mounted the namespace there, a plain file is left.
func TestCleanHalfANamespace(t *testing.T) {
	need.Root(t)
	prefix := prefixOf(t)
	if err := os.MkdirAll(namespaces, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(namespaces, prefix+"-net")
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	removed, err := Clean(prefix)
	if err != nil || !slices.Equal(removed, []string{"namespace " + prefix + "-net"}) {
		t.Errorf("removed %v, %v", removed, err)
	}
}

// The kernel shows the shaper on the host's uplink, with the host's rate.
func TestShaper(t *testing.T) {
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Network: 80e6}, {ID: "h2"}}})
	for host, want := range map[string]uint64{"h1": 80e6 / 8, "h2": 0} {
		p := Place{namespace: l.options.Prefix + "-" + host}
		err := p.Do(func() error {
			link, err := netlink.LinkByName(uplinkName)
			if err != nil {
				return err
			}
			found, err := netlink.QdiscList(link)
			if err != nil {
				return err
			}
			var got uint64
			for _, q := range found {
				if tbf, ok := q.(*netlink.Tbf); ok {
					got = tbf.Rate
				}
			}
			if got != want {
				t.Errorf("%s: the shaper lets %d bytes/s through, want %d", host, got, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestMessages(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{lacks("bridges", "CONFIG_BRIDGE", "bridge", unix.EOPNOTSUPP),
			"needs bridges, which this kernel refuses (operation not supported): the kernel must be built with CONFIG_BRIDGE, or `modprobe " +
				"bridge` load it"},
		{lacks("network namespaces", "CONFIG_NET_NS", "", unix.EPERM), "CAP_SYS_ADMIN and CAP_NET_ADMIN"},
		{groups{}.check([]Host{{ID: "h1", Cores: 1}}), "host h1 is to have 1 cores, but the kernel offers no cpu controller"},
		{groups{}.check([]Host{{ID: "h1", DiskIOPS: 5}}), "no controller for disks"},
		{checkPrefix("a-b"), `prefix "a-b"`},
		{Options{Dir: "d", Hosts: []Host{{ID: "h1"}}}.check(), `prefix ""`},
		{Host{ID: "web"}.Check(), `host "web": the lab's hosts are called h1 to h254`},
		{Host{ID: "h255"}.Check(), "h1 to h254"},
		{Host{ID: "h1", Network: 5}.Check(), "a network of 5 bit/s"},
		{Host{ID: "h1", Cores: 0.01}.Check(), "0.01 cores"},
		{Host{ID: "h1", DiskIOPS: -1}.Check(), "-1 disk operations"},
		{second(PlaceOf("quell", "h1", Client)), "it lies on no host"},
		{second(PlaceOf("quell", "h1", "roof")), `place "roof"`},
		{Options{Prefix: "a", Dir: "d"}.check(), "at least one host"},
		{Options{Prefix: "a", Dir: "d", Hosts: []Host{{ID: "h1"}, {ID: "h1"}}}.check(), "host h1 is there twice"},
	} {
		if user := new(quell.UserError); !errors.As(c.err, &user) || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("got %v, want a user's mistake that says %q", c.err, c.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestMissingProgram(t *testing.T) {
	need.Root(t)
	t.Setenv("PATH", t.TempDir())
	err := Check("nginx", "iperf3")
	const want = "the lab needs programs that are not installed: nginx, iperf3; on Debian: apt-get install nginx-light iperf3"
	if user := new(quell.UserError); !errors.As(err, &user) || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// An interferer that ends by itself is reported once, and started again by the next call.
func TestInterfererEnds(t *testing.T) {
	need.Program(t, "stress-ng")
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Cores: 0.1}}})
	m := l.Machine("h1")
	interfere(t, m, quell.CPU, 0.5)
	p := m.uses[quell.CPU].programs[0]
	p.signal(syscall.SIGKILL)
	<-p.done
	if err := m.Interfere(map[quell.Resource]float64{quell.CPU: 0.5}); err == nil ||
		!strings.Contains(err.Error(), "host h1: interference on its cpu: h1-stress-ng-cpu ended by itself (signal: killed)") {
		t.Errorf("got %v", err)
	}
	interfere(t, m, quell.CPU, 0.5)
	if m.uses[quell.CPU] == nil {
		t.Error("it was not started again")
	}
	interfere(t, m, quell.CPU, 0.001) // if a quota is below the kernel's smallest one, the smallest one applies
}

// When a master is killed, its workers are ended too, because they would keep the port from the next nginx.
func TestKilledNginxLeavesNoWorkers(t *testing.T) {
	need.Program(t, "nginx")
	l := newLab(t, Options{Hosts: []Host{{ID: "h1"}}})
	n := &Nginx{Place: place(t, l, "h1", Instance), Dir: filepath.Join(l.options.Dir, "nginx")}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n.run.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-n.Done()
	space, err := identityOf(filepath.Join(namespaces, n.Place.Namespace()))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		left, err := processesIn(map[identity]bool{space: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("processes %v live on", left)
		}
	}
}
