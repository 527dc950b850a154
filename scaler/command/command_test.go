package command

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// sh is a command that runs a shell script with arguments.
func sh(script string, args ...string) []string {
	return append([]string{"sh", "-c", script, "sh"}, args...)
}

func driver(t *testing.T, o Options) *Driver {
	t.Helper()
	for _, argv := range []*[]string{&o.Start, &o.Stop, &o.List} {
		if *argv == nil {
			*argv = []string{"false"}
		}
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCommandsGetAndPrintJSON(t *testing.T) {
	got := filepath.Join(t.TempDir(), "input")
	d := driver(t, Options{
		Start: sh(`cat > "$1"; echo '["a","b"]'`, got),
		Stop:  sh(`cat > "$1"; echo stopped`, got),
		List: sh(`cat > "$1"; echo '[{"id":"a","address":"10.0.0.1:80","state":"ready","started":"2026-01-01T00:00:00Z"},
			{"id":"b","address":"","state":"starting","started":"2026-01-01T00:00:00Z"}]'`, got),
	})
	ids, err := d.Start(t.Context(), 2)
	if err != nil || !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("Start = %v, %v", ids, err)
	}
	checkFile(t, got, `{"count":2}`)
	if err := d.Stop(t.Context(), []string{"a", "b"}); err != nil {
		t.Error(err)
	}
	checkFile(t, got, `{"ids":["a","b"]}`)
	members, err := d.Members(t.Context())
	if err != nil || len(members) != 2 || members[0].State != quell.Ready || members[1].State != quell.Starting {
		t.Errorf("Members = %+v, %v", members, err)
	}
	checkFile(t, got, "")
}

func checkFile(t *testing.T, name, want string) {
	t.Helper()
	if b, err := os.ReadFile(name); err != nil || string(b) != want {
		t.Errorf("the command got %q, %v; not %q", b, err, want)
	}
}

func TestNothingToDoRunsNothing(t *testing.T) {
	d := driver(t, Options{}) // its commands fail
	if ids, err := d.Start(t.Context(), 0); err != nil || len(ids) != 0 {
		t.Errorf("Start(0) = %v, %v", ids, err)
	}
	if err := d.Stop(t.Context(), nil); err != nil {
		t.Errorf("Stop(none) = %v", err)
	}
	if _, err := d.Start(t.Context(), -1); err == nil {
		t.Error("Start(-1) was accepted")
	}
}

func TestListIsReadStrictly(t *testing.T) {
	for out, want := range map[string]string{
		``:      "nothing",
		`null`:  "null",
		`{}`:    "cannot unmarshal",
		`oops`:  `begins with "oops"`,
		`[] []`: "more after the end",
		`[{"id":"a","state":"ready","address":"h:1","color":"red"}]`:                              "color",
		`[{"state":"ready","address":"h:1"}]`:                                                     "[0]: id: missing",
		`[{"id":"a","address":"h:1"}]`:                                                            "state of a: missing",
		`[{"id":"a","state":"up","address":"h:1"}]`:                                               `unknown state "up"`,
		`[{"id":"a","state":"ready"}]`:                                                            "address of a: missing",
		`[{"id":"a","state":"ready","address":"h"}]`:                                              `"h" is not host:port`,
		`[{"id":"a","state":"ready","address":"h:1","probe":"h"}]`:                                "probe of a",
		`[{"id":"a","state":"ready","address":"h:1"},{"id":"a","state":"ready","address":"h:2"}]`: "given twice",
	} {
		d := driver(t, Options{List: sh(`printf %s "$1"`, out)})
		members, err := d.Members(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("list printed %s: %v, %v; wanted %q", out, members, err, want)
		}
	}
	d := driver(t, Options{List: sh(`echo '[]'`)})
	if members, err := d.Members(t.Context()); err != nil || len(members) != 0 {
		t.Errorf("an empty list = %v, %v", members, err)
	}
}

func TestStartIsReadStrictly(t *testing.T) {
	for out, want := range map[string]string{
		`["a"]`:        "printed 1 ids",
		`["a","a"]`:    "given twice",
		`["a",""]`:     "empty",
		`["a",1]`:      "cannot unmarshal",
		`started a, b`: "begins with",
	} {
		d := driver(t, Options{Start: sh(`printf %s "$1"`, out)})
		if _, err := d.Start(t.Context(), 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("start printed %s: %v, wanted %q", out, err, want)
		}
	}
	for _, out := range []string{"", "\n"} {
		later := driver(t, Options{Start: sh(`printf "$1"`, out)})
		if ids, err := later.Start(t.Context(), 2); len(ids) > 0 || err != nil {
			t.Errorf("start printed %q: %v, %v; the ids come later", out, ids, err)
		}
	}
	d := driver(t, Options{Start: sh(`echo '["a"]'`)})
	if ids, err := d.Start(t.Context(), 2); err == nil || !slices.Equal(ids, []string{"a"}) {
		t.Errorf("the one id that was printed is lost: %v, %v", ids, err)
	}
}

func TestFailureTellsStatusAndTheEndOfStandardError(t *testing.T) {
	d := driver(t, Options{Stop: sh(`head -c 5000 /dev/zero | tr '\0' x >&2; echo "quota is used up" >&2; exit 7`)})
	err := d.Stop(t.Context(), []string{"a"})
	if err == nil || !strings.Contains(err.Error(), "status 7") || !strings.HasSuffix(err.Error(), "quota is used up") {
		t.Fatalf("Stop = %v", err)
	}
	if len(err.Error()) > errorTail+200 {
		t.Errorf("the message has %d bytes", len(err.Error()))
	}
}

func TestMissingProgram(t *testing.T) {
	d := driver(t, Options{List: []string{"./no-such-program"}})
	if _, err := d.Members(t.Context()); err == nil || !strings.Contains(err.Error(), "./no-such-program") {
		t.Errorf("Members = %v", err)
	}
}

func TestTimeout(t *testing.T) {
	d := driver(t, Options{List: sh("sleep 60"), Timeout: 50 * time.Millisecond})
	if _, err := d.Members(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than 50ms") {
		t.Fatalf("Members = %v", err)
	}
}

func TestEndOfContextKillsTheWholeGroup(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	d := driver(t, Options{List: sh(`sleep 60 & echo $! > "$1.new"; mv "$1.new" "$1"; wait`, pidFile)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := d.Members(ctx)
		ended <- err
	}()
	var child int
	eventually(t, "the child runs", func() bool {
		text, _ := os.ReadFile(pidFile)
		child, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return child > 0
	})
	t.Cleanup(func() { syscall.Kill(child, syscall.SIGKILL) })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Members = %v", err)
	}
	eventually(t, "the child killed", func() bool { return !isRunning(child) })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// isRunning says whether a process runs; one that was killed but not yet reaped does not.
func isRunning(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func TestOutputIsBounded(t *testing.T) {
	d := driver(t, Options{List: sh("head -c 3000000 /dev/zero")})
	if _, err := d.Members(t.Context()); !errors.Is(err, errTooMuch) {
		t.Errorf("Members = %v", err)
	}
}

func TestWhatStartLeavesRunningGoesOn(t *testing.T) {
	d := driver(t, Options{Start: sh(`sleep 60 & echo "[\"$!\"]"`)}) // the child holds standard output open
	ids, err := d.Start(t.Context(), 1)
	if err != nil || len(ids) != 1 {
		t.Fatalf("Start = %v, %v", ids, err)
	}
	child, err := strconv.Atoi(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(child, syscall.SIGKILL) })
	if !isRunning(child) {
		t.Error("Start waited for what it left running, or ended it")
	}
}

func TestUnknownStartTimeIsWhenFirstListed(t *testing.T) {
	clock := time.Unix(1000, 0)
	d := driver(t, Options{
		List: sh(`echo '[{"id":"a","address":"h:1","state":"ready"}]'`),
		Now:  func() time.Time { return clock },
	})
	for range 2 {
		members, err := d.Members(t.Context())
		if err != nil || !members[0].Started.Equal(time.Unix(1000, 0)) {
			t.Errorf("members = %+v, %v", members, err)
		}
		clock = clock.Add(10 * time.Second)
	}
}

func TestOptionMistakesComeTogether(t *testing.T) {
	_, err := New(Options{Start: []string{""}, Stop: []string{"x"}, Timeout: -1})
	var mistake *quell.UserError
	if !errors.As(err, &mistake) || strings.Contains(err.Error(), "stop") {
		t.Fatalf("New = %v", err)
	}
	for _, part := range []string{"start: missing", "list: missing", "timeout"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not mentioned in: %v", part, err)
		}
	}
}

func FuzzDecodeMembers(f *testing.F) {
	f.Add([]byte(`[{"id":"a","address":"10.0.0.1:80","state":"ready","started":"2026-01-01T00:00:00Z"}]`))
	f.Add([]byte(`[null]`))
	f.Fuzz(func(t *testing.T, out []byte) {
		members, err := decodeMembers(out)
		if err != nil {
			return
		}
		for _, m := range members {
			if m.ID == "" || m.State == "" || m.State == quell.Ready && !isHostPort(m.Address) {
				t.Fatalf("accepted %+v", m)
			}
		}
	})
}

// The controller declares this interface; packages of drivers do not import it.
var _ interface {
	Members(context.Context) ([]quell.Member, error)
	Start(context.Context, int) ([]string, error)
	Stop(context.Context, []string) error
} = (*Driver)(nil)
