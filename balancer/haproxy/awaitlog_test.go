package haproxy

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/balancer"
)

// Without a controller, the check waits for a request in HAProxy's log. It tells a log that is measured from one that is not, and from
// silence.
func TestAwaitingALine(t *testing.T) {
	for _, tc := range []struct {
		why, frontend string
		requests      bool
		wait          time.Duration
		want          string
		fails         bool
	}{
		{"httplog", "plain", true, 30 * time.Second, " requests measured", false},
		{"an unknown format", "json", true, 30 * time.Second, "example of frontend json: ", true},
		{"no requests", "plain", false, time.Second, "no request came within 1s", false},
	} {
		t.Run(tc.why, func(t *testing.T) {
			l, a := newLab(t, ""), newInstance(t, 0)
			address := filepath.Join(l.dir, "log.sock")
			l.configure(declared("a", a.address()), "log "+address+" local0")
			addresses := l.inFrontends(tc.frontend)
			l.start()
			ctx, cancel := context.WithTimeout(t.Context(), tc.wait)
			defer cancel()
			if tc.requests {
				go func() {
					for ctx.Err() == nil {
						_ = get(http.DefaultClient, "http://"+addresses[tc.frontend]+"/")
						time.Sleep(5 * time.Millisecond)
					}
				}()
			}
			s := &Settings{Sockets: []string{l.socket}, Backend: "app", Log: address}
			got, err := s.AwaitLog(ctx, balancer.Service{Name: "shop", Data: l.dir}, 250*time.Millisecond)
			if err != nil {
				got = err.Error()
			}
			if (err != nil) != tc.fails || !strings.Contains(got, tc.want) {
				t.Errorf("%s; want %q", got, tc.want)
			}
		})
	}
}
