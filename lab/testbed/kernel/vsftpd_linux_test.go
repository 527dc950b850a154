package kernel

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

// vsftpd serves files in an instance's place, to users in the clients' place.
func TestVsftpd(t *testing.T) {
	l := newLab(t, Options{Hosts: []Host{{ID: "h1", Network: 100e6}}})
	if _, err := findVsftpd(); err != nil {
		need.Program(t, "vsftpd")
	}
	v := &Vsftpd{Place: place(t, l, "h1", Instance), Dir: filepath.Join(l.options.Dir, "ftp"), Files: map[string]int64{"file": 100_000}}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := v.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := v.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	dial := func(port int) net.Conn {
		t.Helper()
		var c net.Conn
		err := place(t, l, "", Client).Do(func() (err error) {
			c, err = net.Dial("tcp4", net.JoinHostPort(v.Place.Address().String(), fmt.Sprint(port)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	control := textproto.NewConn(dial(21))
	defer control.Close()
	ask := func(code int, format string, args ...any) string {
		t.Helper()
		if format != "" {
			if _, err := control.Cmd(format, args...); err != nil {
				t.Fatal(err)
			}
		}
		_, text, err := control.ReadResponse(code)
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		return text
	}
	ask(220, "")
	ask(230, "USER anonymous")
	ask(200, "TYPE I")
	var port int
	if _, err := fmt.Sscanf(ask(229, "EPSV"), "Entering Extended Passive Mode (|||%d|)", &port); err != nil {
		t.Fatal(err)
	}
	data := dial(port)
	defer data.Close()
	ask(150, "RETR file")
	if n, err := io.Copy(io.Discard, data); n != 100_000 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	ask(226, "")
	if err := (&Vsftpd{Place: v.Place, Dir: t.TempDir(), Files: map[string]int64{"../x": 1}}).Start(ctx); err == nil {
		t.Error("a file outside of the server's folder is accepted")
	}
}
