package daemon_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/need"
)

// A group whose list is in DNS: an instance that is added there gets requests, and while the server is away everything goes on.
func TestInstancesByName(t *testing.T) {
	t.Parallel()
	zone, change := need.DNS(t)
	port := ""
	for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
		listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if port == "" && err == nil {
			_, port, _ = net.SplitHostPort(listener.Addr().String())
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = server.Listener.Close()
		server.Listener = listener
		server.Start()
		t.Cleanup(server.Close)
	}
	r := newRig(t, "")
	r.write("policy: {name: static}\nprobe: {from: controller}\n" +
		fmt.Sprintf("scaler: {kind: dns, names: [%q], resolver: %q}\n", "web.test:"+port, zone))
	change("host-record=web.test,127.0.0.1\n")
	r.start("controller")
	r.start("balancer")
	r.awaitWeights(map[string]float64{"127.0.0.1": 1})
	change("host-record=web.test,127.0.0.1\nhost-record=web.test,127.0.0.2\n")
	r.awaitWeights(map[string]float64{"127.0.0.1": 0.5, "127.0.0.2": 0.5})
	before, err := r.status()
	if err != nil {
		t.Fatal(err)
	}
	change("host-record=another.test,127.0.0.1\n")
	r.awaitStatus("the name to be missing", func(s controller.Status) bool {
		return has(s.LastFailure["scaler"], "looking up web.test:"+port, "no such host", zone) && s.Failures["look"] == before.Failures["look"]
	})
	r.awaitWeights(map[string]float64{"127.0.0.1": 0.5, "127.0.0.2": 0.5})
}
