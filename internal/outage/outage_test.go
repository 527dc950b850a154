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
