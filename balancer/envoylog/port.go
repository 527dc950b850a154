package envoylog

import (
	"context"
	"log/slog"

	"github.com/quellhq/quell/internal/certfile"
	"github.com/quellhq/quell/internal/grpclimit"
	"github.com/quellhq/quell/setting"
)

const mostStreams = 1000 // of one connection

// Settings are where Envoys connect to, and of which clusters they tell.
type Settings struct {
	Listen    string
	Clusters  []string
	Cert, Key string // certificate of the controller and its key, in PEM; empty: no TLS
	ClientCA  string // certificates that sign those of Envoys; empty: they need none
}

// Keys returns the table of its keys. listen and clusters say what they are for.
func (s *Settings) Keys(listen, clusters string) setting.Table {
	return setting.Table{
		setting.Req("listen", setting.ListenAddress(&s.Listen), listen),
		setting.Req("clusters", setting.ListOf(&s.Clusters, "", func(s *string) setting.Value { return setting.Text(s) }).AtLeast(1), clusters),
		setting.Opt("cert", setting.Text(&s.Cert), "certificate of the controller, in PEM").Or("none: without TLS, only on this machine"),
		setting.Opt("key", setting.Text(&s.Key), "its key").Or("none"),
		setting.Opt("client_ca", setting.Text(&s.ClientCA),
			"certificates of those who sign Envoys' certificates; Envoys then need one").Or("none"),
	}
}

// Check reports keys that contradict each other. at is where they are, with a dot at its end.
func (s *Settings) Check(d *setting.Decoder, at string) {
	if (s.Cert == "") != (s.Key == "") && d.Sound(at+"cert", at+"key") {
		d.Refuse(at+"cert", "give both or none", "a certificate and its key belong together")
	}
	if s.ClientCA != "" && s.Cert == "" && d.Sound(at+"client_ca") {
		d.Refuse(at+"client_ca", "set cert and key, too", "without TLS nobody shows a certificate")
	}
	if s.Listen != "" && s.Cert == "" && !setting.Loopback(s.Listen) && d.Sound(at+"listen") {
		d.Refuse(at+"listen", "set cert, key and client_ca, or listen on 127.0.0.1",
			"anybody who reaches %s could read the endpoints and report false response times", s.Listen)
	}
}

// Files returns the paths that are relative to the configuration.
func (s *Settings) Files() []*string { return []*string{&s.Cert, &s.Key, &s.ClientCA} }

// Port is an open port for Envoys. Services are registered before Serve.
type Port struct{ *grpclimit.Server }

// Open opens the port. section is that of the configuration, for messages.
func (s *Settings) Open(section string, log *slog.Logger) (*Port, error) {
	server, err := grpclimit.Open(grpclimit.Options{Address: s.Listen, What: "Envoy", Section: section, Streams: mostStreams,
		Secure: certfile.Files{Cert: s.Cert, Key: s.Key, ClientCA: s.ClientCA}, Logger: log})
	if err != nil {
		return nil, err
	}
	return &Port{server}, nil
}

// Serve serves Envoys until ctx ends, but none before ready is closed.
func (p *Port) Serve(ctx context.Context, ready <-chan struct{}) {
	select {
	case <-ready:
	case <-ctx.Done():
	}
	p.Server.Serve(ctx)
}
