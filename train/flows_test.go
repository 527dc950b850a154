package train

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/probe"
)

// Flows download from a real probe server until they are ended, and a server that refuses them is an error.
func TestFlows(t *testing.T) {
	server := probe.NewServer(probe.ServerOptions{Token: "secret"})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(listener); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Shutdown(t.Context()) }()
	f := &Flows{Address: listener.Addr().String(), Token: "secret", Capacity: 10e6}
	if err := f.Set(0.5); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); f.Seconds() < 0.05; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in a minute they carried %v s of the link", f.Seconds())
		}
	}
	if err := f.Set(0); err != nil {
		t.Errorf("ended: %v", err)
	}
	before := f.Seconds()
	if time.Sleep(50 * time.Millisecond); f.Seconds() != before {
		t.Error("flows go on after their end")
	}
	f.Token = "wrong"
	if err := f.Set(1); err != nil {
		t.Fatal(err)
	}
	var failed error
	for wait := 50 * time.Millisecond; failed == nil && wait < time.Minute; wait *= 2 {
		time.Sleep(wait)
		failed = f.Set(1)
	}
	if failed == nil || !strings.Contains(failed.Error(), "401") {
		t.Errorf("a wrong token: %v", failed)
	}
	if err := f.Set(0); err != nil && !strings.Contains(err.Error(), "401") {
		t.Error(err)
	}
}
