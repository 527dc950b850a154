package daemon

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/connlimit"
	"github.com/quellhq/quell/internal/webfile"
	"github.com/quellhq/quell/page"
)

// newPage prepares the controller's page.
func newPage(file *config.File, conn *bus.Conn, log *slog.Logger) (*page.Server, error) {
	recorded, err := conn.Journal(file.Service.Name, bus.JournalOptions{Bytes: file.Bus.JournalBytes})
	if err != nil {
		return nil, err
	}
	base := ""
	if file.OneOfSeveral() {
		base = page.Base(file.Service.Name)
	}
	return page.New(page.Options{Recorded: recorded, SLO: file.Service.SLO, Listen: file.Listen, Base: base, TLS: webfile.TLS(file.Web),
		Hosts: file.Page.Hosts, Log: log,
		Viewers: connlimit.Beside(connlimit.Files()) / 2}), nil
}

// pages serves the controller's page, and its metrics, health and status.
func pages(self *self, c *controller.Controller, shown *page.Server) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", c.Handler(self.registry))
	mux.Handle("/{$}", shown.Handler())
	mux.Handle("/page/", shown.Handler())
	return mux
}

// commands answers a person's commands: those to the controller, and `page`, which asks for a log-in to the page.
func (p *platform) commands(file *config.File, r *runner) func(context.Context, bus.Command) bus.Reply {
	return func(ctx context.Context, cmd bus.Command) bus.Reply {
		switch {
		case cmd.Name != bus.Page:
			return r.Command(ctx, cmd)
		case file.Listen == "":
			return bus.Reply{Error: "there is no page: `listen` is off in the controller's configuration"}
		}
		return r.page.Ticket(cmd.By, p.valid(file, cmd.From))
	}
}

// valid returns a function that says whether the credential is still valid with which a command came.
func (p *platform) valid(file *config.File, who auth.Grant) page.Valid {
	if p.server != nil {
		return p.server.Valid(who)
	}
	return auth.Unrevoked(keyringOf(file), who)
}
