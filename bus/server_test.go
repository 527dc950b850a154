package bus

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/quellhq/quell"
)

func TestListenOptions(t *testing.T) {
	certs := certificates(t)
	tests := []struct {
		name    string
		opts    ServerOptions
		refused string
	}{
		{"inside the process only", ServerOptions{}, ""},
		{"loopback", ServerOptions{Listen: "127.0.0.1:0"}, ""},
		{"open to all, who need a credential", ServerOptions{Listen: "0.0.0.0:0"}, ""},
		{"no host is open to all", ServerOptions{Listen: ":0"}, ""},
		{"with client certificates", ServerOptions{Listen: "0.0.0.0:0", TLS: certs.server}, ""},
		{"half of TLS", ServerOptions{Listen: "127.0.0.1:0", TLS: TLS{Cert: certs.server.Cert}}, "cert and key"},
		{"no port", ServerOptions{Listen: "127.0.0.1"}, "host:port"},
		{"a bad port", ServerOptions{Listen: "127.0.0.1:70000"}, "65535"},
		{"messages too small", ServerOptions{MaxPayload: 100}, "largest message"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.opts.StoreDir = "unused"
			_, err := test.opts.natsOptions()
			if test.refused != "" {
				wantUserError(t, err, test.refused)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestServerWithoutAFolder(t *testing.T) {
	_, err := StartServer(ServerOptions{})
	wantUserError(t, err, "folder")
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	_, err = StartServer(ServerOptions{Listen: l.Addr().String(), StoreDir: dir})
	wantWords(t, err, l.Addr().String(), "port is in use")
	startServer(t, ServerOptions{StoreDir: dir}) // the failed start unlocked the folder
}

func TestTheListenerIsOnlyWhereItWasAskedFor(t *testing.T) {
	s := startServer(t, ServerOptions{})
	if s.URL() != "" || s.nats.Addr() != nil {
		t.Errorf("listens on %s", s.nats.Addr())
	}
}

func TestStoreCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), "/dev/null/store"} {
		_, err := StartServer(ServerOptions{StoreDir: dir})
		wantWords(t, err, dir)
	}
}

func TestAStoreHasOneServer(t *testing.T) {
	dir := t.TempDir()
	first := startServer(t, ServerOptions{StoreDir: dir})
	_, err := StartServer(ServerOptions{StoreDir: dir})
	wantWords(t, err, dir, "in use")
	_, err = OpenStore(dir)
	wantWords(t, err, dir, "in use")
	if err := errors.Join(first.Shutdown(), first.Shutdown()); err != nil {
		t.Fatal(err)
	}
	startServer(t, ServerOptions{StoreDir: dir})
}

func TestOpenStoreCreatesNothing(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := OpenStore(missing)
	wantUserError(t, err, missing, "no bus store")
	if _, err := os.Stat(missing); err == nil {
		t.Error("the folder was created")
	}
	empty := t.TempDir()
	_, err = OpenStore(empty)
	wantUserError(t, err, empty, "no bus store")
	if files, err := os.ReadDir(empty); err != nil || len(files) > 0 {
		t.Errorf("something was created: %v %v", files, err)
	}
	_, err = OpenStore("")
	wantUserError(t, err, "folder")
}

func TestAStoreIsReadWithoutAController(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, ServerOptions{StoreDir: dir})
	appendEvents(t, journal(t, connect(t, Options{Server: s}), JournalOptions{}), 3)
	if err := s.Shutdown(); err != nil {
		t.Fatal(err)
	}
	offline, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := offline.Shutdown(); err != nil {
			t.Error(err)
		}
	}()
	c := connect(t, Options{Server: offline})
	if got := texts(t, journal(t, c, JournalOptions{})); len(got) != 3 {
		t.Errorf("read %d entries, want 3", len(got))
	}
	other, err := c.Journal("other", JournalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Read(t.Context(), epoch, nil); !errors.Is(err, quell.ErrNoData) {
		t.Errorf("a journal that is not there: %v", err)
	}
}

// What is acknowledged must be on disk, not only in the system's cache, in case the power fails.
func TestTheStoreIsWrittenSynchronously(t *testing.T) {
	if s := startServer(t, ServerOptions{}); !s.nats.JetStreamConfig().SyncAlways {
		t.Error("the store is not synced at every write")
	}
}

// TestAStoreThatCannotBeOpenedAgain reopens the store while a file is in the place of its folder. It is open again soon after the folder is
// back.
func TestAStoreThatCannotBeOpenedAgain(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, ServerOptions{StoreDir: dir})
	st := state(t, connect(t, Options{Server: s}))
	if err := st.Put(t.Context(), "memory", []byte("before")); err != nil {
		t.Fatal(err)
	}
	store, aside := filepath.Join(dir, server.JetStreamStoreDir), filepath.Join(t.TempDir(), "aside")
	if err := errors.Join(os.Rename(store, aside), os.WriteFile(store, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(); err == nil || !errors.Is(s.Err(), ErrStoreClosed) {
		t.Fatalf("a file was opened as a store: %v, %v", err, s.Err())
	}
	if err := errors.Join(os.Remove(store), os.Rename(aside, store)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "open again", func() bool { return s.Err() == nil })
	if got, err := st.Get(t.Context(), "memory"); err != nil || string(got) != "before" {
		t.Errorf("the store holds %q, %v", got, err)
	}
}
