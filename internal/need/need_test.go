package need

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// recorder is a test that notes how it ended.
type recorder struct {
	testing.TB
	ended, said string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.ended, r.said = "failed", fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skip(args ...any) {
	r.ended, r.said = "skipped", fmt.Sprint(args...)
	runtime.Goexit()
}

func end(body func(testing.TB)) *recorder {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		body(r)
	}()
	<-done
	return r
}

func TestWhatIsMissingSkipsOrFails(t *testing.T) {
	for _, c := range []struct {
		name, require, ended, said string
		body                       func(testing.TB)
	}{
		{"a program that is there", "", "", "", func(t testing.TB) { Program(t, "go") }},
		{"a program that is not", "", "skipped", "apt-get install no-such-program", func(t testing.TB) { Program(t, "no-such-program") }},
		{"the same where all is required", "all", "failed", "needs the program no-such-program",
			func(t testing.TB) { Program(t, "no-such-program") }},
		{"something else", "", "skipped", "no moon", func(t testing.TB) { Skip(t, "no moon") }},
		{"something else where all is required", "all", "failed", "no moon", func(t testing.TB) { Skip(t, "no moon") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("QUELL_REQUIRE", c.require)
			r := end(c.body)
			if r.ended != c.ended || !strings.Contains(r.said, c.said) {
				t.Errorf("%q, saying %q; want %q, saying %q", r.ended, r.said, c.ended, c.said)
			}
		})
	}
}

func TestRoot(t *testing.T) {
	t.Setenv("QUELL_REQUIRE", "")
	want := "skipped"
	if os.Geteuid() == 0 {
		want = ""
	}
	if r := end(Root); r.ended != want {
		t.Errorf("%q, want %q", r.ended, want)
	}
}

func TestPackagesOfDebian(t *testing.T) {
	for program, want := range map[string]string{"tc": "iproute2", "haproxy": "haproxy"} {
		if got := debian(program); got != want {
			t.Errorf("%s is in %q, want %q", program, got, want)
		}
	}
}
