package bus

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/internal/need"
)

// The test binary also runs as child processes that are killed or run out of disk, see childRoles.
func TestMain(m *testing.M) {
	if role, ok := childRoles()[os.Getenv(childRole)]; ok {
		os.Exit(role(os.Getenv(childDir)))
	}
	os.Exit(m.Run())
}

const (
	childRole = "QUELL_BUS_TEST_ROLE"
	childDir  = "QUELL_BUS_TEST_DIR"
	patience  = time.Minute // much longer than any step of a test takes, even on a busy machine
)

func startServer(t testing.TB, opts ServerOptions) *Server {
	t.Helper()
	if opts.StoreDir == "" {
		opts.StoreDir = t.TempDir()
	}
	s, err := StartServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// guarded is a server that listens on loopback and takes credentials.
func guarded(t testing.TB, opts ServerOptions) (*Server, auth.Keyring) {
	t.Helper()
	if opts.Keyring == nil {
		opts.Keyring = &auth.Keyring{Dir: t.TempDir()}
	}
	if opts.Listen == "" {
		opts.Listen = "127.0.0.1:0"
	}
	return startServer(t, opts), *opts.Keyring
}

// as returns options that present a credential.
func as(s *Server, ring auth.Keyring, role auth.Role, id string) Options {
	return Options{URL: s.URL(), Identify: ring.Identify(auth.Grant{Role: role, Service: "video", ID: id}), Name: id}
}

func connect(t testing.TB, opts Options) *Conn {
	t.Helper()
	c, err := Connect(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// embedded returns a connection to a server of its own.
func embedded(t testing.TB) *Conn {
	t.Helper()
	return connect(t, Options{Server: startServer(t, ServerOptions{})})
}

// smallMessages is embedded with a small limit on messages, so that small values already need several messages.
func smallMessages(t testing.TB) *Conn {
	t.Helper()
	return connect(t, Options{Server: startServer(t, ServerOptions{MaxPayload: leastPayload})})
}

func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatal("nothing arrived")
		panic("unreachable")
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// wantUserError checks that err is a *quell.UserError whose message contains each of the given words.
func wantUserError(t testing.TB, err error, words ...string) {
	t.Helper()
	var user *quell.UserError
	if !errors.As(err, &user) {
		t.Fatalf("got %v, want a user error", err)
	}
	wantWords(t, err, words...)
}

func wantWords(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestConnectRefusesBadURLs(t *testing.T) {
	for _, raw := range []string{"", "127.0.0.1:4222", "http://127.0.0.1:4222", "nats://", "nats://a b"} {
		_, err := Connect(Options{URL: raw})
		wantUserError(t, err, "URL")
	}
}

func TestATokenInTheURLIsNeverShown(t *testing.T) {
	s := startServer(t, ServerOptions{Listen: "127.0.0.1:0", Token: "right"})
	_, err := Connect(Options{URL: strings.Replace(s.URL(), "nats://", "nats://hush@", 1)})
	wantUserError(t, err, "token")
	if strings.Contains(err.Error(), "hush") {
		t.Errorf("error %q shows the token", err)
	}
}

func TestTokens(t *testing.T) {
	s := startServer(t, ServerOptions{Listen: "127.0.0.1:0", Token: "right"})
	if c := connect(t, Options{URL: s.URL(), Token: "right"}); !c.Connected() {
		t.Error("the right token does not connect")
	}
	if c := connect(t, Options{Server: s}); !c.Connected() {
		t.Error("a connection inside the process does not take the server's token")
	}
	for _, wrong := range []string{"", "wrong"} {
		_, err := Connect(Options{URL: s.URL(), Token: wrong})
		wantUserError(t, err, "refused the token", s.URL())
	}
}

func TestAnAgentMayStartBeforeItsServer(t *testing.T) {
	address, ring := need.FreeAddress(t), auth.Keyring{Dir: t.TempDir()}
	if err := ring.Make(); err != nil {
		t.Fatal(err)
	}
	c := connect(t, Options{URL: "nats://" + address, Identify: ring.Identify(auth.Grant{Role: auth.Controller, Service: "video", ID: "c"})})
	if c.Connected() {
		t.Fatal("connected to nothing")
	}
	if err := c.PublishReading(reading("i1")); !errors.Is(err, ErrNotConnected) {
		t.Errorf("publishing without a server: %v", err)
	}
	got := make(chan quell.Reading, 10_000)
	stop, err := c.SubscribeReadings("video", into(t, func(r quell.Reading, _ time.Time) { got <- r }))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()

	startServer(t, ServerOptions{Listen: address, Keyring: &ring})
	eventually(t, "connected", c.Connected)
	eventually(t, "a reading", func() bool { // readings come over their own connection
		if err := c.PublishReading(reading("i2")); err != nil {
			t.Fatal(err)
		}
		return len(got) > 0
	})
	if r := receive(t, got); r.Instance != "i2" {
		t.Errorf("got a reading of %s; the one refused before must not come", r.Instance)
	}
}

func TestAConnectionSurvivesARestartOfItsServer(t *testing.T) {
	address, dir := need.FreeAddress(t), t.TempDir()
	first := startServer(t, ServerOptions{Listen: address, StoreDir: dir, Token: "t"})
	c := connect(t, Options{URL: first.URL(), Token: "t"})
	if err := first.Shutdown(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "disconnected", func() bool { return !c.Connected() })
	startServer(t, ServerOptions{Listen: address, StoreDir: dir, Token: "t"})
	eventually(t, "connected again", c.Connected)
}

// When a wrong token is corrected, on either side, the connection recovers soon.
func TestARefusedConnectionGoesOnTrying(t *testing.T) {
	address, dir := need.FreeAddress(t), t.TempDir()
	var shown atomic.Value
	shown.Store("old")
	c := connect(t, Options{URL: "nats://" + address, Persistent: true, Identify: func() (auth.Identity, error) {
		return auth.Identity{Token: shown.Load().(string)}, nil
	}})
	wantLink := func(up bool, problem string) {
		t.Helper()
		eventually(t, fmt.Sprintf("up %t, %q", up, problem), func() bool {
			l := c.Link()
			return l.Up == up && strings.Contains(l.Problem, problem) && c.Connected() == up
		})
	}
	first := startServer(t, ServerOptions{Listen: address, StoreDir: dir, Token: "new"})
	wantLink(false, "refused the token")
	time.Sleep(2 * firstWait) // by default the NATS library gives up after two refusals
	shown.Store("new")
	wantLink(true, "")
	if err := first.Shutdown(); err != nil {
		t.Fatal(err)
	}
	wrong := startServer(t, ServerOptions{Listen: address, StoreDir: dir, Token: "other"})
	wantLink(false, "refused the token")
	if err := wrong.Shutdown(); err != nil {
		t.Fatal(err)
	}
	startServer(t, ServerOptions{Listen: address, StoreDir: dir, Token: "new"})
	wantLink(true, "")
}

func TestWhatCannotBeReadIsTriedAgain(t *testing.T) {
	s := startServer(t, ServerOptions{Listen: "127.0.0.1:0", Token: "t"})
	var there atomic.Bool
	c := connect(t, Options{URL: s.URL(), Persistent: true, TLS: TLS{}, Identify: func() (auth.Identity, error) {
		if !there.Load() {
			return auth.Identity{}, errors.New("no such file")
		}
		return auth.Identity{Token: "t"}, nil
	}})
	if c.Connected() {
		t.Fatal("connected without a token")
	}
	there.Store(true)
	eventually(t, "connected", c.Connected)
}

func TestThePausesBetweenAttemptsAreBounded(t *testing.T) {
	for n := range 100 {
		if wait := backoff(n); wait < firstWait/2 || wait > longestWait {
			t.Errorf("attempt %d waits %s", n, wait)
		}
	}
	if wait := backoff(1 << 40); wait < longestWait/2 {
		t.Errorf("a late attempt waits %s", wait)
	}
}

func TestCloseIsNotAnError(t *testing.T) {
	c := embedded(t)
	c.Close()
	c.Close()
	if l := c.Link(); l.Problem != "" {
		t.Errorf("closed with %q", l.Problem)
	}
	if err := c.PublishReading(reading("i1")); !errors.Is(err, ErrNotConnected) {
		t.Errorf("publishing after Close: %v", err)
	}
}

// lines is a log that several goroutines write.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestABusThatIsNotThereIsToldOnce connects to a port where nothing listens.
func TestABusThatIsNotThereIsToldOnce(t *testing.T) {
	t.Parallel()
	var log lines
	c := connect(t, Options{URL: fmt.Sprintf("nats://127.0.0.1:%d", freePorts(t, 1)[0]), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	within(t, patience, "the connection to fail", func() error {
		if c.Link().Problem == "" {
			return errors.New("no problem yet")
		}
		return nil
	})
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "refused") {
		t.Errorf("logged\n%s", text)
	}
}

// linesTo passes on each line of a log.
type linesTo chan string

func (l linesTo) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestReadingsThatAreLockedOutAreTold connects to a server that takes a single connection, so that the one for readings is refused until
// the server takes more.
func TestReadingsThatAreLockedOutAreTold(t *testing.T) {
	opts := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, MaxConn: 1}
	s := started(t, opts)
	log := make(linesTo, 100)
	c := connect(t, Options{URL: s.ClientURL(), Logger: slog.New(slog.NewTextHandler(log, nil))})
	if text := receive(t, log); !strings.Contains(text, `"connected to the bus"`) || c.Err() != nil {
		t.Errorf("logged %s, %v", text, c.Err())
	}
	stop, err := c.SubscribeReadings("video", into(t, func(quell.Reading, time.Time) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if text := receive(t, log); !strings.Contains(text, "WARN") || !strings.Contains(text, "readings of agents: no connection to the bus") {
		t.Errorf("logged %s", text)
	}
	wantWords(t, c.Err(), "readings of agents: no connection since")

	opts = opts.Clone()
	opts.MaxConn = 2
	if err := s.ReloadOptions(opts); err != nil {
		t.Fatal(err)
	}
	for text := ""; !strings.Contains(text, "readings of agents: connected to the bus again"); {
		text = receive(t, log)
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}
