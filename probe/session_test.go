package probe

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The time that a request waited at the probe server is subtracted, unless the reported time cannot be true.
func TestWaitingAtTheServerIsTakenOff(t *testing.T) {
	const size, hold = 1000, 30 * time.Millisecond
	var header atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(hold)
		w.Header().Set(waitedHeader, header.Load().(string))
		_, _ = w.Write([]byte(strings.Repeat("x", size)))
	}))
	defer server.Close()
	o, err := Options{Period: time.Minute, Size: size, Dial: new(net.Dialer).DialContext}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		header string
		off    time.Duration
	}{{"25000", 25 * time.Millisecond}, {"3600000000", 0}, {"-5", 0}, {"soon", 0}} {
		header.Store(c.header)
		s, err := newSession(o, Target{Instance: "i1", Address: strings.TrimPrefix(server.URL, "http://")}, size)
		if err != nil {
			t.Fatal(err)
		}
		s.probe(t.Context()) // opens the connection
		began := time.Now()
		r := s.probe(t.Context())
		whole := time.Since(began)
		s.close()
		if r.kind != measured || r.took > whole-c.off || r.took < hold-c.off {
			t.Errorf("waited %q: a probe of %v took %v (%v)", c.header, whole, r.took, r.err)
		}
	}
}
