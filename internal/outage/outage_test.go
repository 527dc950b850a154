package outage

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestEachOutageIsLoggedAtItsEnds(t *testing.T) {
	var b bytes.Buffer
	l := Log{Logger: slog.New(slog.NewTextHandler(&b, nil)), What: "publishing"}
	bad, worse := errors.New("bad"), errors.New("worse")
	for _, err := range []error{nil, bad, worse, nil, nil, bad} {
		l.Report(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "publishing failed") || !strings.Contains(lines[0], "error=bad") ||
		!strings.Contains(lines[1], "works again") || !strings.Contains(lines[1], "failures=2") || !strings.Contains(lines[2], "error=bad") {
		t.Errorf("logged:\n%s", b.String())
	}
}

func TestANoticeIsNoFailure(t *testing.T) {
	var b bytes.Buffer
	n := Notice{Logger: slog.New(slog.NewTextHandler(&b, nil)), Begun: "weights were changed", End: "weights are as wanted"}
	for _, on := range []bool{false, true, true, false, false, true} {
		n.Observe(on, "socket", "s")
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `msg="weights were changed" socket=s`) || !strings.Contains(lines[1], "as wanted") ||
		strings.Contains(b.String(), "failed") || strings.Contains(b.String(), "works again") {
		t.Errorf("logged:\n%s", b.String())
	}
}
