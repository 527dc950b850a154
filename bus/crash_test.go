package bus

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// childRoles are the roles that the test binary plays as a child process.
func childRoles() map[string]func(dir string) int {
	return map[string]func(string) int{"append": appendForEver, "fill": fillDisk, "reopen": reopenDisk, "node": serveNode}
}

func child(ctx context.Context, role, dir string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childDir+"="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// appendForEver appends entries and snapshots to the journal, and prints the number of each when it was acknowledged.
func appendForEver(dir string) int {
	s, err := StartServer(ServerOptions{StoreDir: dir})
	if err != nil {
		return childFailed(err)
	}
	c, err := Connect(Options{Server: s})
	if err != nil {
		return childFailed(err)
	}
	j, err := c.Journal("video", JournalOptions{FlushSnapshots: 1})
	if err != nil {
		return childFailed(err)
	}
	for i := 0; ; i++ {
		if err := j.Append(context.Background(), event(i)); err != nil {
			return childFailed(err)
		}
		if err := j.AppendSnapshot(context.Background(), snapshot(i)); err != nil {
			return childFailed(err)
		}
		fmt.Println(i)
	}
}

func childFailed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func TestWhatWasAcknowledgedSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	last := -1
	for range 2 { // the second process continues where the first was killed
		last = killWhileAppending(ctx, t, dir, last)
	}
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	j := journal(t, connect(t, Options{Server: s}), JournalOptions{})
	wantRuns(t, "entries", texts(t, j), last)
	wantRuns(t, "snapshots", snapshots(t, j, epoch), last)
}

// killWhileAppending returns how many entries and snapshots were acknowledged, including those before.
func killWhileAppending(ctx context.Context, t *testing.T, dir string, before int) int {
	t.Helper()
	cmd := child(ctx, "append", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	acknowledged := 0
	for lines.Scan() {
		if acknowledged++; acknowledged == 100 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || acknowledged < 100 {
		t.Fatalf("the child ended by itself after %d entries: %v", acknowledged, err)
	}
	return before + acknowledged
}

// wantRuns checks that the numbers of the entries, and of the snapshots, are 0, 1, 2, ... in order, and that everything acknowledged is
// there. One more of each may be there, which was written but not yet acknowledged.
func wantRuns(t *testing.T, what string, got []string, last int) {
	t.Helper()
	runs, next := 0, 0
	for _, text := range got {
		if text == "0" {
			runs, next = runs+1, 0
		}
		if text != fmt.Sprint(next) {
			t.Fatalf("%s: %s where %d should be", what, text, next)
		}
		next++
	}
	if acknowledged := last + 1; runs != 2 || len(got) < acknowledged || len(got) > acknowledged+2*2 {
		t.Errorf("%s: %d in %d runs are there, %d were acknowledged", what, len(got), runs, acknowledged)
	}
}
