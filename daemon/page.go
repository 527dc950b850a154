package daemon

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/quellhq/quell/bus"
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
func commands(file *config.File, c *controller.Controller, shown *page.Server) func(context.Context, bus.Command) bus.Reply {
	return func(ctx context.Context, cmd bus.Command) bus.Reply {
		switch {
		case cmd.Name != bus.Page:
			return c.Command(ctx, cmd)
		case file.Listen == "":
			return bus.Reply{Error: "there is no page: `listen` is off in the controller's configuration"}
		}
		return shown.Ticket(cmd.By)
	}
}
