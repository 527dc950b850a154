package haproxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// HAProxy's text about a failing check is passed on. The most common mistake is a path that the instance does not have.
func TestFailingCheckIsToldInHAProxysWords(t *testing.T) {
	well := newInstance(t, 0)
	files := httptest.NewServer(http.NotFoundHandler())
	defer files.Close()
	l := newLab(t, "option httpchk GET /healthz\n"+declared("well", well.address(), "files", files.Listener.Addr().String()))
	l.start()
	d := l.driver(nil)
	await(t, "the checks", func() (bool, any) {
		states, err := d.State(context.Background())
		if err != nil {
			return false, err
		}
		for _, s := range states {
			switch {
			case s.ID == "well" && (!s.Healthy || s.Health != ""):
				return false, s
			case s.ID == "files" && (s.Healthy || !strings.HasPrefix(s.Health, "HAProxy's check: L7STS/404, ") ||
				!strings.Contains(s.Health, "Not Found")):
				return false, s
			}
		}
		return len(states) == 2, states
	})
}

func TestCheckOf(t *testing.T) {
	columns := map[string]int{"check_status": 0, "check_code": 1, "check_desc": 2, "last_chk": 3}
	for want, fields := range map[string][]string{
		"": {"", "", "", ""},
		"HAProxy's check: L7STS/404, Layer7 wrong status, Not Found": {"L7STS", "404", "Layer7 wrong status", "Not Found"},
		"HAProxy's check: L7STS/400, Layer7 wrong status, Bad Request; if the server answers to another name only, add " +
			"`http-check send hdr Host NAME` to the backend": {"L7STS", "400", "Layer7 wrong status", "Bad Request"},
		"HAProxy's check: L4CON, Layer4 connection problem":                   {"* L4CON", "", "Layer4 connection problem", ""},
		"HAProxy's check: L4TOUT, Layer4 timeout, at initial connection step": {"L4TOUT", "0", "Layer4 timeout", "at initial connection step"},
	} {
		if got := checkOf(&row{columns, fields, nil}); got != want {
			t.Errorf("%q: got %q, want %q", fields, got, want)
		}
	}
}
