package haproxy

import (
	"fmt"
	"net/http"
	"strings"
)

// refusal is how HAProxy itself ended a request that no server answered.
type refusal int

const (
	noRefusal refusal = iota
	queued            // it waited for a server for longer than `timeout queue`
	unserved          // no server was there
	refusals          // how many kinds there are
)

// refusalOf reads it from a line of the log: the server's name, the status, and how the session ended.
func refusalOf(server string, status int, ended string) refusal {
	switch {
	case ended[1] == 'Q' && (ended[0] == 's' || ended[0] == 'S'):
		return queued
	case strings.HasPrefix(server, "<NOSRV") && status == http.StatusServiceUnavailable:
		return unserved
	}
	return noRefusal
}

// refused returns an error if HAProxy itself refused requests.
func (w *window) refused(backend string) error {
	waited, alone := w.log.refused[queued], w.log.refused[unserved]
	if waited+alone == 0 {
		return nil
	}
	return fmt.Errorf("HAProxy itself refused %d requests to backend %s, which are in no instance's figures: %d waited too long in its "+
		"queue, for %d no server was up", waited+alone, backend, waited, alone)
}
