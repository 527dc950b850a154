package include

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/internal/lockfile"
)

// file writes a file of servers and reads it.
func file(t *testing.T, text string) (f *File, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "servers.conf")
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return f, path
}

func holds(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("the file is %q, %v, want %q", text, err, want)
	}
}

func TestEdits(t *testing.T) {
	const one, two = "server a:1 weight=3 max_fails=2;", "  server b:2 down; # two\n"
	const none = "server 127.0.0.1:9 down; # there is no instance\n"
	for _, c := range []struct {
		why, text, want string
		nobody          bool
		edit            func(*File, *Edit)
	}{
		{"nothing", one + "\n" + two, one + "\n" + two, false, func(*File, *Edit) {}},
		{"other weight and state", one + "\n" + two, "server a:1 weight=5 down max_fails=2;\n  server b:2; # two\n", false,
			func(f *File, e *Edit) {
				e.Set(f.Servers[1], 1, false)
				e.Set(f.Servers[0], 5, true)
			}},
		{"two come, one goes", "# mine\n" + two + "keepalive 8;\n",
			"# mine\n   # two\n  server c:3;\n  server d:4 weight=2 backup;\nkeepalive 8;\n", false,
			func(f *File, e *Edit) {
				e.Remove(f.Servers[0])
				e.Add("c:3", 1, false, nil)
				e.Add("d:4", 2, false, []string{"backup"})
			}},
		{"a whole line goes", one + "\n\tserver b:2;\t\r\n", one + "\n", false, func(f *File, e *Edit) { e.Remove(f.Servers[1]) }},
		{"the last one goes", one + "\n", none, true, func(f *File, e *Edit) { e.Remove(f.Servers[0]) }},
		{"the first one comes", none, "server a:1;\n", true, func(_ *File, e *Edit) { e.Add("a:1", 1, false, nil) }},
		{"no line ends the file", "server a:1;", "server a:1;\nserver b:2;", false, func(_ *File, e *Edit) { e.Add("b:2", 1, false, nil) }},
		{"an empty file", "", none, true, func(*File, *Edit) {}},
	} {
		f, _ := file(t, c.text)
		e := f.Edit()
		c.edit(f, e)
		if text, nobody := e.Text(); text != c.want || nobody != c.nobody {
			t.Errorf("%s: %q, nobody comes or goes: %v; want %q, %v", c.why, text, nobody, c.want, c.nobody)
		}
	}
}

// A new text that cannot be put to use is taken back, but nothing that somebody else wrote is lost.
func TestReplace(t *testing.T) {
	_, path := file(t, "server a;\n")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	f, err := Read(link)
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	if err := f.Replace("server b;\n", func() error { holds(t, path, "server b;\n"); return refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
	holds(t, path, "server a;\n")
	err = f.Replace("server b;\n", func() error { return errors.Join(refused, os.WriteFile(path, []byte("server c;\n"), 0o600)) })
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "somebody has changed "+link) {
		t.Error(err)
	}
	holds(t, path, "server c;\n")
	if err := f.Replace("server d;\n", func() error { return nil }); err != nil {
		t.Error(err)
	}
	holds(t, path, "server d;\n")
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v, %v", info, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v, %v", info, err)
	}
}

func TestRead(t *testing.T) {
	f, err := Read(filepath.Join(t.TempDir(), "missing"))
	if err != nil || len(f.Servers) > 0 {
		t.Errorf("a missing file: %+v, %v", f, err)
	}
	if _, err := Read(t.TempDir()); err == nil {
		t.Error("a folder was read")
	}
	_, path := file(t, "")
	if err := os.WriteFile(path, []byte("server a;\nserver a:80 down;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path+": line 2: a:80 is declared in line 1") {
		t.Errorf("a server twice: %v", err)
	}
}

func TestFind(t *testing.T) {
	f, _ := file(t, "server web; server 10.0.0.1;")
	same := func(a, b string) bool { return a == "web:80" && (b == "10.0.0.1:80" || b == "10.0.0.2:80") }
	for address, want := range map[string]string{"10.0.0.1": "10.0.0.1:80", "10.0.0.2:80": "web:80"} {
		if s := f.Find(address, same); s == nil || s.Address != want {
			t.Errorf("%s: %+v", address, s)
		}
	}
	if s := f.Find("10.0.0.3", same); s != nil {
		t.Errorf("found %+v", s)
	}
}

func TestClaim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "servers.conf")
	release, _, err := Claim(path, "ops-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, holder, err := Claim(path, "ops-2"); !errors.Is(err, lockfile.ErrHeld) || holder != "ops-1" {
		t.Errorf("the second: %q, %v", holder, err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if release, _, err = Claim(path, "ops-2"); err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

func TestTextsForTheConfiguration(t *testing.T) {
	for text, good := range map[string]bool{"": true, "max_fails=2 fail_timeout=5s": true, "backup": true, "weight=3": false, "down": false,
		"a; server b": false, "a } http {": false, "a # b": false, "'": false} {
		if problem := Parameters(text); (problem == "") != good {
			t.Errorf("parameters %q: %s", text, problem)
		}
	}
	for text, good := range map[string]bool{"10.0.0.1:80": true, "[::1]:80": true, "web": true, "": false, "a b": false, "a;b": false,
		"#": false} {
		if IsAddress(text) != good {
			t.Errorf("address %q: %v", text, !good)
		}
	}
}
