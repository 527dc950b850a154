package daemon

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnlineWhereOnlyAgentsRun: in an agent's pod a check asks neither for the controller, for which the pod has no credential, nor for the
// balancer's admin socket, which is in another pod.
func TestOnlineWhereOnlyAgentsRun(t *testing.T) {
	bus, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(well.Close)
	path := filepath.Join(t.TempDir(), "quell.yaml")
	for _, tc := range []struct {
		proof, wanted string
	}{
		{"proof: kubernetes", fmt.Sprintf("true bus nats://%[1]s: connect, true instance i1 at %[2]s: GET /healthz", bus.Addr(),
			well.Listener.Addr())},
		{"", "false bus nats://" + bus.Addr().String() + ": connect, false balancer at "},
		{"proof: kubernetes", "false bus nats://" + bus.Addr().String() + ": connect, true instance i1"}, // with a closed bus
	} {
		text := fmt.Sprintf("service: shop\nslo: {metric: mean, threshold: 75ms}\npolicy: {name: static}\ndata: %s\n"+
			"balancer: {admin: none.sock}\nbus: {url: \"nats://%s\", %s}\nscaler: {instances: [{id: i1, address: %q}]}\n",
			t.TempDir(), bus.Addr(), tc.proof, well.Listener.Addr())
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := Drivers().Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(tc.wanted, "false") {
			_ = bus.Close()
		}
		var got []string
		for _, a := range Online(t.Context(), file) {
			got = append(got, fmt.Sprint(a.OK, " ", a.Asked))
		}
		if text := strings.Join(got, ", "); !strings.HasPrefix(text, tc.wanted) {
			t.Errorf("%q: %s, want %s", tc.proof, text, tc.wanted)
		}
	}
}
