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

	"github.com/quellhq/quell/bus/auth"
)

const (
	smallDisk = 3 << 20
	ballast   = 512 << 10 // deleted to free space again
)

// fillDisk mounts a small disk in its own mount namespace, fills it with a journal, and prints what happens.
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

// reopenDisk is like fillDisk, but the bus keeps running: leases are renewed and taken while the disk is full, and writing works again
// once there is space.
func reopenDisk(dir string) int {
	weight := filepath.Join(dir, "ballast")
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk))
	if err == nil {
		err = os.WriteFile(weight, make([]byte, ballast), 0o600)
	}
	if err != nil {
		return childFailed(err)
	}
	if err := overflow(dir, weight); err != nil {
		return childFailed(err)
	}
	fmt.Println("went on")
	return 0
}

func overflow(dir, weight string) error {
	elsewhere, err := os.MkdirTemp("", "keyring")
	if err != nil {
		return err
	}
	defer os.RemoveAll(elsewhere)
	ring := auth.Keyring{Dir: elsewhere}
	s, err := StartServer(ServerOptions{StoreDir: dir, Listen: "127.0.0.1:0", Keyring: &ring})
	if err != nil {
		return err
	}
	defer func() { _ = s.Shutdown() }()
	c, err := Connect(Options{Server: s})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx := context.Background()
	l, err := c.Lease(ctx, "video", "here", time.Minute)
	if err != nil {
		return err
	}
	state, err := c.State("video")
	if err != nil {
		return err
	}
	if err := state.Put(ctx, "memory", []byte("before")); err != nil {
		return err
	}
	j, err := c.Journal("video", JournalOptions{})
	written := 0
	for ; err == nil; written++ {
		e := event(written)
		e.Text = hex.EncodeToString(noise(uint64(written), 30_000))
		err = j.Append(ctx, e)
	}
	written--
	<-s.Failed()
	if err := l.Renew(ctx); err != nil {
		return fmt.Errorf("on a full disk: %w", err)
	}
	rival, err := Connect(as(s, ring, auth.Controller, "rival"))
	if err != nil {
		return err
	}
	defer rival.Close()
	if _, err := rival.Lease(ctx, "video", "there", time.Second); err == nil || !strings.Contains(err.Error(), "held by the controller here") {
		return fmt.Errorf("on a full disk a rival gets: %w", err)
	}
	if _, err := rival.Lease(ctx, "other", "there", time.Second); err != nil {
		return fmt.Errorf("on a full disk another service's lease: %w", err)
	}
	began := time.Now()
	if err := state.Put(ctx, "memory", []byte("lost")); err == nil || time.Since(began) > requestTimeout/2 {
		return fmt.Errorf("a full disk took a value, or %v to refuse it: %w", time.Since(began), err)
	}
	if err := os.Remove(weight); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); s.Err() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("the store stays closed: %w", s.Err())
		}
	}
	if got, err := state.Get(ctx, "memory"); err != nil || string(got) != "before" {
		return fmt.Errorf("the store holds %q, %w", got, err)
	}
	if err := errors.Join(state.Put(ctx, "memory", []byte("after")), j.Append(ctx, event(written)), l.Renew(ctx)); err != nil {
		return fmt.Errorf("with space again: %w", err)
	}
	kept := 0
	if err := j.Read(ctx, time.Time{}, func(Entry) error { kept++; return nil }); err != nil || kept < written+1 {
		return fmt.Errorf("%d entries of %d are there: %w", kept, written+1, err)
	}
	return nil
}

// fillJournal appends until it fails, twice.
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

// A bus whose disk was full recovers by itself, and no lease is lost.
func TestTheStoreReopens(t *testing.T) {
	if out := onSmallDisk(t, "reopen"); strings.TrimSpace(out) != "went on" {
		t.Error(out)
	}
}

func TestAFullDisk(t *testing.T) {
	out := onSmallDisk(t, "fill")
	full, rest, _ := strings.Cut(out, "again:")
	again, lost, _ := strings.Cut(rest, "lost:")
	if strings.Count(full, "cannot be written; it is opened again once its disk has space") != 2 {
		t.Errorf("two appends to a full disk: %s", full)
	}
	if !strings.Contains(again, "is full; free some space") {
		t.Errorf("a start on a full disk: %s", again)
	}
	if strings.TrimSpace(lost) != "0, <nil>" {
		t.Errorf("acknowledged but lost: %s", lost)
	}
}

// onSmallDisk runs a role in a child process that may mount its own disk, and returns its output.
func onSmallDisk(t *testing.T, role string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := child(ctx, role, t.TempDir())
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
	return string(out)
}

func skipUnlessRequired(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("QUELL_REQUIRE") == "all" {
		t.Fatal(why)
	}
	t.Skip(why)
}
