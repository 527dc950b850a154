package builtin

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/strictjson"
)

// maxAdminBody is the limit of a list of backends in bytes: 10,000 of them take about 2 MB.
const maxAdminBody = 16 << 20

// Status is the answer to GET /state on the admin socket.
type Status struct {
	Name       string               `json:"name"`
	Service    string               `json:"service"`
	Scheduling quell.Scheduling     `json:"scheduling"`
	Started    time.Time            `json:"started"`
	Unrouted   int64                `json:"unrouted"` // requests that found no instance, since the start
	Backends   []quell.BackendState `json:"backends"`
	Owner      *quell.Owner         `json:"owner,omitempty"` // the controller that the balancer obeys
}

// ownerHeader names the controller that sends a list of backends. If a list comes without it, the sender counts as a person.
const ownerHeader = "Quell-Owner"

// schedulingBody is the body of PUT /scheduling.
type schedulingBody struct {
	Scheduling quell.Scheduling `json:"scheduling"`
}

// adminError is the body of a refusal.
type adminError struct {
	Error string            `json:"error"`
	Owned *quell.OwnedError `json:"owned,omitempty"` // set if another controller owns the balancer
}

// adminHandler is the API on the admin socket: GET /state, PUT /backends (the whole list, all or nothing), PUT and DELETE /backends/ID/hold
// (take an instance out of rotation, put it back), PUT /scheduling, PUT /owner (take or renew a controller's lease of the balancer), DELETE
// /owner/ID (end that lease), PUT /load (how busy the group is, for load reports) and POST /take-over (pass the listening sockets to
// another process).
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, s.Status())
	})
	mux.HandleFunc("PUT /backends", func(w http.ResponseWriter, r *http.Request) {
		var desired []quell.Backend
		switch {
		case !decode(w, r, &desired):
		case desired == nil:
			answer(w, errors.New("null is not a list of backends; an empty list is []"))
		default:
			if owner := r.Header.Get(ownerHeader); owner != "" {
				answer(w, s.applyAs(owner, desired))
			} else {
				answer(w, s.applyByHand(desired))
			}
		}
	})
	mux.HandleFunc("PUT /backends/{id}/hold", func(w http.ResponseWriter, r *http.Request) {
		answer(w, s.hold(r.PathValue("id"), byHand()))
	})
	mux.HandleFunc("DELETE /backends/{id}/hold", func(w http.ResponseWriter, r *http.Request) {
		answer(w, s.Release(r.Context(), r.PathValue("id")))
	})
	mux.HandleFunc("PUT /owner", func(w http.ResponseWriter, r *http.Request) {
		var owner quell.Owner
		if decode(w, r, &owner) {
			answer(w, s.Own(r.Context(), owner))
		}
	})
	mux.HandleFunc("DELETE /owner/{id}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, s.Disown(r.Context(), r.PathValue("id")))
	})
	mux.HandleFunc("PUT /load", func(w http.ResponseWriter, r *http.Request) {
		var body loadBody
		if decode(w, r, &body) {
			answer(w, s.tellLoad(body))
		}
	})
	mux.HandleFunc("PUT /scheduling", func(w http.ResponseWriter, r *http.Request) {
		var body schedulingBody
		if decode(w, r, &body) {
			answer(w, s.SetScheduling(body.Scheduling))
		}
	})
	mux.HandleFunc("POST "+takeOverPath, s.serveTakeOver)
	return mux
}

func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAdminBody))
	if err == nil {
		err = strictjson.Decode(data, v)
	}
	if err != nil {
		answer(w, err)
	}
	return err == nil
}

func answer(w http.ResponseWriter, err error) {
	var tooLarge *http.MaxBytesError
	var owned *quell.OwnedError
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.As(err, &tooLarge):
		reply(w, http.StatusRequestEntityTooLarge, adminError{Error: err.Error()})
	case errors.As(err, &owned):
		reply(w, http.StatusConflict, adminError{err.Error(), owned})
	default:
		reply(w, http.StatusBadRequest, adminError{Error: err.Error()})
	}
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have closed the connection
}
