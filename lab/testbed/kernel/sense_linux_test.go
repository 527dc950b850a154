package kernel

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/sensor"
)

// sensesVariable makes the test program a process that reads its machine's counters as an agent does.
const sensesVariable = "QUELL_TEST_SENSES"

// sense begins a reading, writes a line, waits for a line of input, ends the reading and writes it.
func sense(in io.Reader, out io.Writer) error {
	set, err := sensor.New(sensor.Options{
		Root: os.DirFS("/"), Capacity: map[quell.Resource]float64{quell.Network: 100e6}, Cgroup: sensor.OwnCgroup,
	})
	if err != nil {
		return err
	}
	if _, failures := set.Sample(time.Now()); len(failures) > 0 {
		return fmt.Errorf("sampling: %v", failures)
	}
	fmt.Fprintln(out, "begun")
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return err
	}
	obs, failures := set.Sample(time.Now())
	if len(failures) > 0 {
		return fmt.Errorf("sampling: %v", failures)
	}
	return json.NewEncoder(out).Encode(obs)
}

// An agent in an instance's place reads that place's network card, and that group's processor time relative to the
// host's quota. It sees nothing of the neighbour's use.
func TestAgentSensesItsOwnPlace(t *testing.T) {
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Network: 100e6, Cores: 0.2}}})
	const size = 2_000_000
	url := startNginx(t, l, "h1", map[string]int64{"file": size}) + "/file"
	c := client(place(t, l, "", Client), false)

	quiet := sensed(t, l, func() { defer spin(t, place(t, l, "h1", Neighbour))(); awaitThrottling(t, l) })
	busy := sensed(t, l, func() {
		defer spin(t, place(t, l, "h1", Instance))()
		if n, err := get(c, url); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		awaitThrottling(t, l)
	})
	for what, o := range map[string]quell.Observation{"quiet": quiet, "busy": busy} {
		t.Logf("%s: %.3f s, utilization %v, counters %v", what, o.WindowS, o.Utilization, o.Counters)
	}
	sent := busy.Counters[sensor.CounterTx] * busy.WindowS / 8
	if !(sent > size && sent < 1.1*size) {
		t.Errorf("the agent counts %.0f bytes sent, of a file of %d", sent, size)
	}
	if got := quiet.Utilization[quell.Network]; got > 0.01 {
		t.Errorf("the agent counts %.3f of the link where the instance sent nothing", got)
	}
	alone, beside := busy.Utilization[quell.CPU], quiet.Utilization[quell.CPU]
	if used := busy.CPU.User + busy.CPU.System; math.Abs(used-alone) > 1e-9 {
		t.Errorf("user and system time are %.3f of the quota, and %.3f is used", used, alone)
	}
	if !(alone < 1.4 && beside < alone) {
		t.Errorf("the processor: %.3f of the quota used by the instance, %.3f beside a busy neighbour", alone, beside)
	}
}

// Beside a neighbour that uses up the host's quota, an agent on an idle instance reads the same user, system and disk-waiting time as
// without one, and no throttling: the quota is the host's, not the instance's.
func TestNeighbourIsNotSensed(t *testing.T) {
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Network: 100e6, Cores: 0.2}}})
	const window = 500 * time.Millisecond
	calm := sensed(t, l, func() { time.Sleep(window) })
	beside := sensed(t, l, func() {
		defer spin(t, place(t, l, "h1", Neighbour))()
		time.Sleep(window)
		awaitThrottling(t, l)
	})
	const little = 0.15 // of the quota, of which the neighbour takes about 1; the agent's own sampling takes a few hundredths
	for what, o := range map[string]quell.Observation{"calm": calm, "beside a busy neighbour": beside} {
		t.Logf("%s: %.3f s, %+v, %+v, %v", what, o.WindowS, o.CPU, o.Sched, o.Counters)
		if o.CPU == nil || o.Sched == nil || o.CPU.User > little || o.CPU.System > little || o.CPU.IOWait != nil && *o.CPU.IOWait > little {
			t.Errorf("%s: the idle instance's processors: %+v, %+v", what, o.CPU, o.Sched)
		}
		if _, told := o.Counters[sensor.CounterThrottled]; told || o.Sched.ThrottledS == nil || *o.Sched.ThrottledS != 0 {
			t.Errorf("%s: throttled: %v, %+v", what, o.Counters, o.Sched)
		}
		if o.Pressure != nil {
			t.Errorf("%s: pressure %v, which is not the instance's own", what, o.Pressure)
		}
	}
	if _, told := beside.TCP[sensor.RetransmitRate]; !told {
		t.Errorf("no rate of retransmissions: %v", beside.TCP)
	}
}

// From what an agent reads on an instance that wants a whole processor, it is told that a neighbour makes it wait, and how much of the
// processor the neighbour uses.
func TestNeighbourIsNamed(t *testing.T) {
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Network: 100e6, Cores: 1}}})
	const window = 500 * time.Millisecond
	defer spin(t, place(t, l, "h1", Instance))()
	origin := func() quell.Waits {
		o := sensed(t, l, func() { time.Sleep(window) })
		waits, ok := policy.Origin(&o, nil)
		if !ok || waits.Neighbours == nil || waits.Hidden == nil {
			t.Fatalf("nothing can be said of %+v, %+v", o.CPU, o.Sched)
		}
		t.Logf("waits: %s; hidden %.2f, cause %q", waits.Parts(), *waits.Hidden, waits.Cause)
		return waits
	}
	alone := origin()
	defer spin(t, place(t, l, "h1", Neighbour))()
	beside := origin()
	if !(*beside.Neighbours > *alone.Neighbours && *beside.Hidden > *alone.Hidden && beside.Cause == quell.NeighboursCause) {
		t.Errorf("alone %+v, beside a neighbour %+v", alone, beside)
	}
}

// awaitThrottling waits until the host's quota has stopped processes several more times.
func awaitThrottling(t *testing.T, l *Lab) {
	t.Helper()
	throttled := func() int {
		text, err := os.ReadFile(filepath.Join(l.groups.cpu, base(l.options.Prefix), "h1", "cpu.stat"))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut("\n"+string(text), "\nnr_throttled ")
		n, err := strconv.Atoi(strings.SplitN(after, "\n", 2)[0])
		if err != nil {
			t.Fatalf("reading cpu.stat: %v\n%s", err, text)
		}
		return n
	}
	before := throttled()
	eventually(t, "the quota to stop somebody", func() bool { return throttled() >= before+5 })
}

// sensed returns what an agent in the instance's place reads while f runs.
func sensed(t *testing.T, l *Lab, f func()) (obs quell.Observation) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), sensesVariable+"=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := place(t, l, "h1", Instance).Start(cmd); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "begun\n" {
		t.Fatalf("the agent says %q, %v: %s", line, err, said.String())
	}
	f()
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(lines).Decode(&obs); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return obs
}
