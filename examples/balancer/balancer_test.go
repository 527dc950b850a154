package balancer

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/balancer/balancertest"
)

func some(t *testing.T) balancer.Service {
	return balancer.Service{Data: t.TempDir(), Drain: time.Hour, Logger: slog.New(slog.DiscardHandler)}
}

func instances(t *testing.T) (addresses []string) {
	for range 3 {
		s := httptest.NewServer(nil)
		t.Cleanup(s.Close)
		addresses = append(addresses, s.Listener.Addr().String())
	}
	return addresses
}

func TestContract(t *testing.T) {
	in := some(t)
	balancertest.Contract(t, func() balancer.Driver {
		d, err := open(filepath.Join(in.Data, "shop.yml"), "shop", in)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}, instances(t), 0)
}

// Before the first plan that is applied, in the mode advise for ever, State lists what Traefik has.
func TestWhatWasThereBefore(t *testing.T) {
	in, addresses := some(t), instances(t)
	in.Members = []quell.Member{{ID: "a", Address: addresses[0], Probe: "127.0.0.1:9466"}, {ID: "b", Address: addresses[1]}}
	file := filepath.Join(in.Data, "shop.yml")
	text := "http: {services: {shop: {loadBalancer: {servers: [{url: http://" + addresses[1] + ", weight: 3}, {url: http://" + addresses[0] +
		"}]}}}}"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := open(file, "shop", in)
	if err != nil {
		t.Fatal(err)
	}
	balancertest.Before(t, d, in.Members, 0.25, 0.75)
}

func TestWhatTraefikReads(t *testing.T) {
	in := some(t)
	file := filepath.Join(in.Data, "shop.yml")
	d, err := open(file, "shop", in)
	if err != nil {
		t.Fatal(err)
	}
	err = d.Apply(t.Context(), []quell.Backend{{ID: "a", Address: "10.0.0.1:80", Weight: 0.75},
		{ID: "b", Address: "10.0.0.2:80", Weight: 0.25}, {ID: "c", Address: "10.0.0.3:80", Draining: true}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(string(text), "http:\n")
	want := `  services:
    shop:
      loadBalancer:
        servers:
        - url: http://10.0.0.1:80
          weight: 99
        - url: http://10.0.0.2:80
          weight: 33
`
	if got != want {
		t.Errorf("the file has\n%s", got)
	}
	if states, _ := d.State(t.Context()); states[2].InFlight == 0 {
		t.Error("the drain is over at once")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if states, _ := d.State(t.Context()); states[0].Address != "" {
		t.Errorf("without the file: %+v", states[0])
	}
	if err := os.WriteFile(filepath.Join(in.Data, "traefik.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := open(file, "shop", in); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("a damaged memory: %v", err)
	}
}
