package process

import (
	"strconv"
	"syscall"
	"testing"
)

// If an instance exits while no controller runs and leaves a process of its group behind, the next controller kills that process.
func TestWhatAnInstanceLeftBehindIsEndedByTheNext(t *testing.T) {
	dir := t.TempDir()
	killController(t, dir, "parent")
	l, _, err := (&folder{dir: dir}).load()
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Instances[0]
	child, err := strconv.Atoi(get(t, gone.Address, "/child"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(child, syscall.SIGKILL) })
	crash(gone.Address)
	eventually(t, "the instance dead", func() bool { return isDead(gone.PID) })
	if isDead(child) {
		t.Fatal("the child ended with the instance")
	}
	open(t, options(dir, "parent"))
	eventually(t, "the child dead", func() bool { return isDead(child) })
}
