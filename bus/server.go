package bus

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/connlimit"
)

// ServerOptions configure an embedded bus.
type ServerOptions struct {
	Listen     string        // host:port, port 0 picks a free one; empty: reachable only inside the process
	StoreDir   string        // holds journals, states and leases; created if missing
	Keyring    *auth.Keyring // whose credentials are accepted; nil: none are
	Token      string        // token that grants a shared role: readings of every instance, and the status; empty: none
	TLS        TLS
	MaxPayload int          // largest message in bytes; 0 means 1 MiB
	Logger     *slog.Logger // gets the server's own messages at debug level; nil discards

	cert *certfile.Certificate // from the files of TLS; nil: none
}

const (
	defaultPayload = 1 << 20
	leastPayload   = 64 << 10
	largestPayload = 64 << 20
	maxStore       = 1 << 50 // streams have their own limits; a limit derived from the free space would refuse them on a nearly full disk
	maxMemory      = 16 << 20
	maxPending     = 32 << 20 // bytes waiting for a client that does not read
	maxControlLine = 32 << 10 // enough for a credential with a long name
	startWait      = 10 * time.Second
	shutdownWait   = 10 * time.Second
)

// Server is an embedded bus.
type Server struct {
	nats   *server.Server
	url    string
	inside string // the secret that connections inside the process present
	log    *slog.Logger
	dir    string
	lock   *dirLock
	auth   *auth.Authenticator
	leases *ownLeases
	store  storeHealth

	ended context.Context // done when Shutdown begins
	end   context.CancelFunc
	work  sync.WaitGroup

	stop    sync.Once
	stopErr error
}

// StartServer starts a bus inside this process. It handles no signals and never ends the process. It can be used by this process, by
// holders of a credential or token and, if client certificates are verified, by holders of such a certificate.
func StartServer(opts ServerOptions) (*Server, error) {
	conf, err := opts.natsOptions()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(opts.StoreDir, 0o700); err != nil {
		return nil, fmt.Errorf("create the bus store %s: %w", opts.StoreDir, err)
	}
	return start(opts, conf)
}

// OpenStore opens the store of a bus that is not running, for reading. It can be reached only inside the process. It
// creates nothing: a folder that is missing or holds no store is a *quell.UserError.
func OpenStore(dir string) (*Server, error) {
	opts := ServerOptions{StoreDir: dir}
	conf, err := opts.natsOptions()
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(filepath.Join(dir, server.JetStreamStoreDir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, userErrorf("%s holds no bus store; name the folder that the controller keeps its data in", dir)
	case err != nil:
		return nil, userErrorf("open the bus store %s: %w", dir, err)
	case !info.IsDir():
		return nil, userErrorf("%s holds no bus store: %s is not a folder", dir, server.JetStreamStoreDir)
	}
	return start(opts, conf)
}

func (opts *ServerOptions) natsOptions() (*server.Options, error) {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	opts.MaxPayload = cmp.Or(opts.MaxPayload, defaultPayload)
	if opts.StoreDir == "" {
		return nil, userErrorf("the bus needs a folder for its store")
	}
	if opts.MaxPayload < leastPayload || opts.MaxPayload > largestPayload {
		return nil, userErrorf("bus: a largest message of %d bytes; allowed are %d to %d", opts.MaxPayload, leastPayload, largestPayload)
	}
	conf := &server.Options{
		ServerName: "quell", JetStream: true, StoreDir: opts.StoreDir, SyncAlways: true,
		JetStreamMaxStore: maxStore, JetStreamMaxMemory: maxMemory, DisableJetStreamBanner: true,
		NoSigs: true, NoLog: true, DontListen: opts.Listen == "", AlwaysEnableNonce: true,
		MaxControlLine: maxControlLine,
		MaxPayload:     int32(opts.MaxPayload), MaxPending: maxPending,
	}
	return conf, opts.listenOptions(conf)
}

func (opts *ServerOptions) listenOptions(conf *server.Options) (err error) {
	if opts.Listen == "" {
		return nil
	}
	if conf.Host, conf.Port, err = splitListen(opts.Listen); err != nil {
		return err
	}
	if opts.cert, err = opts.TLS.server(opts.Logger); err != nil {
		return err
	}
	if opts.cert != nil {
		conf.TLSConfig, conf.TLS, conf.TLSVerify = opts.cert.Config(), true, opts.TLS.verifiesClients()
	}
	conf.MaxConn = mostConns(connlimit.Files())
	return nil
}

const (
	// ownFiles is how many open files a controller needs for itself: store, journal, leases, sockets to the balancer.
	ownFiles   = 48
	fewestConn = 8
)

// mostConns returns the limit of the bus's connections under a limit of open files, 0 for NATS's default. It leaves files for the process
// itself and a quarter for its other work. Connections that do not authenticate are closed after two seconds.
func mostConns(files int) int {
	if files == 0 {
		return 0
	}
	return max(fewestConn, files-ownFiles-min(files/4, 8192))
}

func splitListen(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, userErrorf("bus.listen %q: want host:port: %w", listen, err)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, userErrorf("bus.listen %q: want a port from 0 to 65535", listen)
	}
	host = cmp.Or(host, "0.0.0.0")
	if n == 0 {
		return host, server.RANDOM_PORT, nil
	}
	return host, int(n), nil
}

func start(opts ServerOptions, conf *server.Options) (_ *Server, err error) {
	lock, err := lockDir(opts.StoreDir)
	if err != nil {
		return nil, err
	}
	s := &Server{inside: rand.Text(), log: opts.Logger, dir: opts.StoreDir, lock: lock, leases: newOwnLeases()}
	s.ended, s.end = context.WithCancel(context.Background())
	s.store.renew()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Shutdown())
		}
	}()
	if err := portFree(opts.Listen); err != nil {
		return nil, err
	}
	if s.auth, err = auth.New(auth.Options{Keyring: opts.Keyring, Inside: s.inside, Token: opts.Token,
		Certificates: opts.TLS.verifiesClients() && opts.Token == "", Logger: opts.Logger}); err != nil {
		return nil, err
	}
	conf.CustomClientAuthentication = s.auth
	if err := s.launch(conf); err != nil {
		return nil, fmt.Errorf("start the bus with store %s: %w", opts.StoreDir, err)
	}
	s.url = listenURL(s.nats, conf)
	s.work.Go(func() { s.auth.Watch(s.ended, s.nats) })
	if opts.cert != nil {
		s.work.Go(func() { opts.cert.Follow(s.ended) })
	}
	return s, nil
}

// launch starts the server. NATS reports a failed start in several ways; launch returns each of them as an error.
func (s *Server) launch(conf *server.Options) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the NATS server failed: %v", r)
		}
	}()
	if s.nats, err = server.NewServer(conf); err != nil {
		return err
	}
	logger := &natsLogger{log: s.log, broken: s.storeFailed}
	s.nats.SetLoggerV2(logger, s.log.Enabled(context.Background(), slog.LevelDebug), false, false)
	s.nats.Start()
	if fatal := logger.fatal(); fatal != "" {
		return errors.New(fatal)
	}
	if !s.nats.ReadyForConnections(startWait) {
		return fmt.Errorf("not ready after %s", startWait)
	}
	return nil
}

// portFree tries to listen on the port, because the system's error is clearer than the NATS server's.
func portFree(listen string) error {
	if listen == "" {
		return nil
	}
	l, err := net.Listen("tcp", listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("bus.listen %s: the port is in use, perhaps by another controller; stop that or choose another port: %w", listen, err)
	}
	if err != nil {
		return fmt.Errorf("bus.listen %s: %w", listen, err)
	}
	return l.Close()
}

func listenURL(s *server.Server, conf *server.Options) string {
	if conf.DontListen {
		return ""
	}
	host, port, err := net.SplitHostPort(s.Addr().String())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "nats"
	if conf.TLSConfig != nil {
		scheme = "tls"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// URL returns the address at which clients on this machine reach the bus. It is empty if the bus has no listener.
func (s *Server) URL() string { return s.url }

// AcceptProofs lets machines without a credential show a kind of proof to the controller of a service: see Conn.ServeJoins.
func (s *Server) AcceptProofs(service, kind string) { s.auth.AcceptProofs(service, kind) }

// Valid returns a function that says whether the credential is still valid with which the holder of a grant has sent something: see
// Command.From.
func (s *Server) Valid(who auth.Grant) func(now time.Time) bool { return s.auth.Valid(who) }

func (s *Server) String() string {
	if s.url == "" {
		return "the embedded bus"
	}
	return s.url
}

// Shutdown ends the bus within ten seconds and unlocks its folder. Further calls do nothing and return the same
// error.
func (s *Server) Shutdown() error {
	s.stop.Do(func() {
		s.end()
		s.work.Wait()
		s.store.opening.Lock()
		defer s.store.opening.Unlock()
		s.stopErr = errors.Join(s.shutdownNATS(), s.lock.release())
	})
	return s.stopErr
}

func (s *Server) shutdownNATS() error {
	if s.nats == nil {
		return nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(shutdownWait):
		return fmt.Errorf("the bus did not stop within %s", shutdownWait)
	}
}
