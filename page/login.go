package page

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/quellhq/quell/bus"
)

const mostBody = 16 << 10

// body reads a request's JSON; false if it was refused.
func body(w http.ResponseWriter, r *http.Request, v any) bool {
	if kind := r.Header.Get("Content-Type"); kind != "application/json" {
		http.Error(w, "send application/json", http.StatusUnsupportedMediaType)
		return false
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		http.Error(w, "bad JSON: "+shown(err.Error()), http.StatusBadRequest)
		return false
	}
	return true
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	var sent struct {
		Ticket string `json:"ticket"`
	}
	if !body(w, r, &sent) {
		return
	}
	x, ok := s.tickets.find(sent.Ticket, s.opts.Now(), true)
	if !ok {
		http.Error(w, "the address was used before, is older than five minutes, or was got with a credential that is no longer valid: "+
			"run quell page again", http.StatusUnauthorized)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.cookie, Value: s.logins.issue(x.by, x.valid, s.opts.Now(), sessionLife), Path: "/",
		MaxAge: int(sessionLife.Seconds()), Secure: s.opts.TLS, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	answer(w, map[string]string{"by": x.by})
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(s.cookie); err == nil {
		s.logins.drop(c.Value)
	}
	http.SetCookie(w, &http.Cookie{Name: s.cookie, Path: "/", MaxAge: -1, Secure: s.opts.TLS, HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	answer(w, map[string]string{"by": ""})
}

// allowed are the commands that the page has buttons for.
var allowed = []bus.CommandName{bus.Pause, bus.Resume, bus.Override, bus.Clear, bus.Drain, bus.Undrain, bus.Release}

func (s *Server) command(w http.ResponseWriter, r *http.Request) {
	by, ok := s.who(r)
	if !ok {
		http.Error(w, "log in first: quell page prints the address for it", http.StatusUnauthorized)
		return
	}
	var cmd bus.Command
	if !body(w, r, &cmd) {
		return
	}
	if !slices.Contains(allowed, cmd.Name) {
		http.Error(w, "the page has no such command", http.StatusBadRequest)
		return
	}
	if err := cmd.Check(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	cmd.By = by + " (page)"
	reply := s.control.Command(context.WithoutCancel(r.Context()), cmd) // a browser that leaves does not cut it short
	if reply.Error != "" {
		http.Error(w, shown(reply.Error), http.StatusConflict)
		return
	}
	var done any
	if err := json.Unmarshal(reply.Body, &done); err != nil {
		done = nil
	}
	answer(w, map[string]any{"reply": done})
}
