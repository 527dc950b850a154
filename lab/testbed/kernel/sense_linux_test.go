package kernel

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
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
	if !(alone < 1.4 && beside < alone) {
		t.Errorf("the processor: %.3f of the quota used by the instance, %.3f beside a busy neighbour", alone, beside)
	}
	if busy.Counters[sensor.CounterThrottled] <= 0 {
		t.Errorf("the quota stopped nobody: %v", busy.Counters)
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
