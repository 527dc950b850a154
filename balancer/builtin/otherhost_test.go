package builtin

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

// If only the host of an address changed, its port is still open in the process that passes its sockets on, and the error says so.
func TestAnotherAddressOfAPortThatIsPassedOn(t *testing.T) {
	old, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	file, err := old.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, port, _ := net.SplitHostPort(old.Addr().String())
	for lasting, want := range map[bool]string{
		false: "cannot be taken over: restart the balancer", true: "give the socket unit the new address (ListenStream=)",
	} {
		passed, err := net.FileListener(file)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Listen: ":" + port, Logger: slog.New(slog.DiscardHandler)}
		have := Inherited{Traffic: passed, Lasting: lasting}.fitting(&o)
		_, err = have.listenTCP(t.Context(), have.Traffic, "traffic", o.Listen)
		var mistake *quell.UserError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), old.Addr().String()) {
			t.Errorf("with sockets of systemd: %v: %v", lasting, err)
		}
	}
	_, err = Inherited{}.listenTCP(t.Context(), nil, "traffic", ":"+port)
	if err == nil || !strings.Contains(err.Error(), "by another process") {
		t.Errorf("in use by another program: %v", err)
	}
}
