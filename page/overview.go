package page

import (
	"html/template"
	"io/fs"
	"net/http"
	"net/url"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/tell"
)

// Listed is one of several services of a controller.
type Listed struct {
	Name   string
	Status *controller.Status // nil: it does not run
	Why    string             // why it does not run
}

// Base is the path of a service's page among several.
func Base(service string) string { return "/services/" + url.PathEscape(service) + "/" }

// overview is a line of the list.
type overview struct {
	Name, Address, Headline, Acting string
	Level                           tell.Level
}

var overviewPage = template.Must(template.ParseFS(files, "files/services.html"))

// Overview serves a list of several services, each with whether it is well and a link to its page. On addresses that other machines reach,
// it shows only the names: their pages ask for a log-in.
func Overview(opts Options, services func() []Listed) http.Handler {
	s := New(opts)
	static, err := fs.Sub(files, "files")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		var rows []overview
		for _, one := range services() {
			rows = append(rows, s.line(one))
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = overviewPage.Execute(w, rows) // the client may be gone
	})
	mux.Handle("GET /page/static/", http.StripPrefix("/page/static/", http.FileServerFS(static)))
	return s.guard(mux)
}

func (s *Server) line(one Listed) overview {
	row := overview{Name: shown(one.Name), Address: Base(one.Name)}
	switch {
	case !s.loopback:
	case one.Status == nil:
		row.Headline, row.Level = shown("does not run: "+one.Why), tell.Down
	default:
		w := tell.Of(one.Status, clock)
		headline, level := w.Objective()
		row.Headline, row.Level, row.Acting = shown(headline), level, shown(w.Acting())
	}
	return row
}
