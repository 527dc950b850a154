package bus

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	smallDisk = 3 << 20
	ballast   = 512 << 10 // deleted to make space again
)

// fillDisk mounts a small disk, alone in its mount namespace, fills it with a journal, and says what it sees.
func fillDisk(dir string) int {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk)); err != nil {
		return childFailed(err)
	}
	weight := filepath.Join(dir, "ballast")
	if err := os.WriteFile(weight, make([]byte, ballast), 0o600); err != nil {
		return childFailed(err)
	}
	acknowledged, full := fillJournal(dir)
	fmt.Println("full:", full)
	_, err := StartServer(ServerOptions{StoreDir: dir})
	fmt.Println("again:", err)
	if err := os.Remove(weight); err != nil {
		return childFailed(err)
	}
	kept, err := countEntries(dir)
	fmt.Printf("lost: %d, %v\n", acknowledged-kept, err)
	return 0
}

// fillJournal appends until that fails, twice.
func fillJournal(dir string) (acknowledged int, full error) {
	s, err := StartServer(ServerOptions{StoreDir: dir})
	if err != nil {
		return 0, err
	}
	c, err := Connect(Options{Server: s})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	j, err := c.Journal("video", JournalOptions{})
	for ; err == nil; acknowledged++ {
		e := event(acknowledged)
		e.Text = hex.EncodeToString(noise(uint64(acknowledged), 30_000))
		err = j.Append(context.Background(), e)
	}
	again := j.Append(context.Background(), event(0))
	<-s.Failed()
	return acknowledged - 1, errors.Join(err, again, s.Shutdown())
}

func countEntries(dir string) (n int, err error) {
	s, err := OpenStore(dir)
	if err != nil {
		return 0, err
	}
	c, err := Connect(Options{Server: s})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	j, err := c.Journal("video", JournalOptions{})
	if err != nil {
		return 0, err
	}
	err = j.Read(context.Background(), time.Time{}, func(Entry) error { n++; return nil })
	return n, errors.Join(err, s.Shutdown())
}

func TestAFullDisk(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := child(ctx, "fill", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		skipUnlessRequired(t, "needs user namespaces: "+err.Error())
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	full, rest, _ := strings.Cut(string(out), "again:")
	again, lost, _ := strings.Cut(rest, "lost:")
	if strings.Count(full, "cannot be written; free disk space") != 2 {
		t.Errorf("two appends to a full disk: %s", full)
	}
	if !strings.Contains(again, "is full; free some space") {
		t.Errorf("a start on a full disk: %s", again)
	}
	if strings.TrimSpace(lost) != "0, <nil>" {
		t.Errorf("acknowledged but lost: %s", lost)
	}
}

func skipUnlessRequired(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("QUELL_REQUIRE") == "all" {
		t.Fatal(why)
	}
	t.Skip(why)
}
