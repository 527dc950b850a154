// Package daemon builds Quell's processes from a configuration: controller, agent and balancer.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/connlimit"
	"github.com/quellhq/quell/internal/namedfile"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/webfile"
)

// stopWait limits how long each part of a process may take to end.
const stopWait = 10 * time.Second

// maxCredential is the largest size of a credential file in bytes.
const maxCredential = 64 << 10

// attentive is how often controllers and balancers ping the server of the bus. A controller or balancer leaves a server that has not
// answered for three times as long. Agents, of which there may be thousands, ping less often.
const attentive = time.Second

// join connects to the configured bus permanently: if the bus is away or refuses, it tries again. The credential is read again at
// each attempt. Sender and receiver both check readings.
func join(file *config.File, server *bus.Server, role auth.Role, id string, log *slog.Logger) (*bus.Conn, error) {
	o := busOptions(file, role, id)
	o.Server, o.Logger, o.Persistent = server, log, true
	if role != auth.Sensor {
		o.Ping = attentive
	}
	if server == nil {
		if err := checkCredential(file, auth.Grant{Role: role, Service: file.Service.Name, ID: id}); err != nil {
			return nil, err
		}
	}
	return bus.Connect(o)
}

func busOptions(file *config.File, role auth.Role, id string) bus.Options {
	return bus.Options{
		URL: busOf(file), TLS: bus.TLS(file.Bus.TLS), Name: string(role) + " " + id, Replicas: file.Bus.Replicas,
		Validate: (*quell.Reading).Validate,
		Identify: func() (auth.Identity, error) {
			return identify(file, auth.Grant{Role: role, Service: file.Service.Name, ID: id})
		},
		SharedMayCommand: file.Bus.TokenCommands,
	}
}

// identify reads what a process presents to the bus: the configured credential, or, if that file is missing, the credential that the
// controller on this machine keeps for it; and the token. For an external bus, the controller's credentials are used only after the
// bus was set up for them.
func identify(file *config.File, g auth.Grant) (id auth.Identity, err error) {
	if id.Token, err = config.Token(file.Bus.Token, file.Bus.TokenFile); err != nil {
		return id, err
	}
	var named error
	if file.Bus.Credentials != "" {
		if id.Credential, named = namedfile.Read(file.Bus.Credentials, maxCredential); named == nil {
			return id, badCredential(file.Bus.Credentials, id.Credential, g)
		}
	}
	if joins(file, g.Role) {
		id.Credential, err = readJoined(file, g)
		return id, err
	}
	ring := keyringOf(file)
	if file.Bus.URL == "" || ring.External() {
		id.Credential, err = ring.Find(g)
	}
	switch {
	case err == nil && len(id.Credential) > 0: // the controller's machine has a keyring in place of bus.credentials
		return id, nil
	case named != nil && err != nil:
		err = fmt.Errorf("bus.credentials: %w; %w", named, err)
	case named != nil:
		err = fmt.Errorf("bus.credentials: %w", named)
	case err == nil || id.Token != "" || file.Bus.TLS.Cert != "":
		return id, nil
	}
	return id, &quell.UserError{Err: fmt.Errorf("no credential for the bus: on the controller's machine start the controller first, or "+
		"run this as the user that "+
		"owns %s; elsewhere set bus.credentials to a file made there with `quell credentials %s`: %w", ring.Dir, g, err)}
}

// checkCredential returns an error if the configured credential is a file that can be read but is not one for g. If it cannot be read yet,
// it may come. A pipe is only read by identify.
func checkCredential(file *config.File, g auth.Grant) error {
	info, err := os.Stat(file.Bus.Credentials)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	text, err := namedfile.Read(file.Bus.Credentials, maxCredential)
	if err != nil {
		return nil
	}
	return badCredential(file.Bus.Credentials, text, g)
}

// badCredential returns an error if a file's text is no credential, or one that does not allow what g does.
func badCredential(path string, text []byte, g auth.Grant) error {
	err := auth.Check(text, g)
	if err == nil {
		return nil
	}
	return &quell.UserError{Err: fmt.Errorf("bus.credentials: %s: %w; make one on the controller's machine with `quell credentials %s`",
		path, err, g)}
}

// keyringOf is the keyring of a service on the controller's machine.
func keyringOf(file *config.File) auth.Keyring {
	return auth.Keyring{Dir: file.Bus.Keyring, Own: file.Bus.Own}
}

// busOf describes the bus that a configuration names.
func busOf(file *config.File) string {
	if file.Bus.URL != "" {
		return file.Bus.URL
	}
	return "nats://" + reachable(file.Bus.Listen)
}

// reachable returns an address at which a listener can be reached from this machine: loopback if it listens on all
// addresses.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return listen
}

// Connect connects to the bus for a person's command: if the bus refuses, it returns an error at once.
func Connect(file *config.File) (*bus.Conn, error) {
	o := busOptions(file, auth.Operator, string(auth.Operator))
	if _, err := o.Identify(); err != nil {
		return nil, err
	}
	return bus.Connect(o)
}

// ServeHTTP serves until stop is called; an empty address serves nothing. web is a web configuration file; "": plain HTTP.
func ServeHTTP(what, address, web string, handler http.Handler, log *slog.Logger) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w; choose another address or stop what uses it", what, err)
	}
	server := connlimit.Guard(&http.Server{Handler: handler, ErrorLog: outage.ErrorLog(log)})
	go func() {
		if err := webfile.Serve(web, server, connlimit.Limit(listener, log), log); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serving failed", "what", what, "error", err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopWait)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
	}, nil
}

// checkWeb returns an error if the web configuration file of a configuration cannot be used.
func checkWeb(file *config.File) error {
	if file.Web == "" {
		return nil
	}
	if err := webfile.Check(file.Web); err != nil {
		return &quell.UserError{Err: fmt.Errorf("web_config: %w", err)}
	}
	return nil
}

// cleanups are functions to run at the end, in reverse order; an error of one does not stop the next.
type cleanups struct{ all []func() error }

func (c *cleanups) add(f func() error) { c.all = append(c.all, f) }

func (c *cleanups) run() error {
	var errs []error
	for i := len(c.all) - 1; i >= 0; i-- {
		errs = append(errs, c.all[i]())
	}
	return errors.Join(errs...)
}
