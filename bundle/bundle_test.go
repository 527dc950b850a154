package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// planted are kinds of secrets, each with the text that holds it in a configuration or elsewhere.
var planted = []struct{ kind, secret, config, text string }{
	{"token", "correct-horse-battery", "bus:\n  token: correct-horse-battery\n", "connect with correct-horse-battery failed"},
	{"password in a URL", "pa55w0rd", "bus2:\n  url: nats://user:pa55w0rd@10.0.0.1:4222\n",
		"dial nats://user:pa55w0rd@10.0.0.1:4222: refused"},
	{"private key", "MIIEvQIBADANBg", "key: |\n  -----BEGIN PRIVATE KEY-----\n  MIIEvQIBADANBgkqhkiG9w0BAQ\n  -----END PRIVATE KEY-----\n",
		"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----"},
	{"header", "dXNlcjpwYXNz", "health: {header: \"Authorization: Basic dXNlcjpwYXNz\"}\n", "Authorization: Basic dXNlcjpwYXNz"},
	{"seed", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY", "",
		"seed SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"},
	{"JWT", "eyJhbGciOiJIUzI1NiJ9", "", "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def"},
	{"cloud key", "AKIAIOSFODNN7EXAMPLE", "", "key AKIAIOSFODNN7EXAMPLE refused"},
	{"argument of a program", "hunter2", "scaler:\n  start: [start.sh, --password, hunter2]\n",
		"program start.sh --password hunter2 failed"},
	{"query", "s1gnature", "path: /healthz?sig=s1gnature\n", "GET /healthz?sig=s1gnature is answered with 403"},
	{"comment", "rootpw99", "# the old password was rootpw99\n", ""},
	{"key of a map", "t0psecretkey", "labels: {\"t0psecretkey=1\": 2}\n", ""},
	{"number-like", "123456789012", "token2: \"123456789012\"\n", "code 123456789012"},
	{"short token", "2024abcde", "bus3:\n  token: 2024abcde\n", "connect with 2024abcde failed"},
	{"number as a token", "87654321", "probe:\n  token: 87654321\n", "connect with 87654321 failed"},
	{"number as an argument", "31415926", "scaler2:\n  start: [start.sh, --password, 31415926]\n", "start.sh said 31415926"},
}

func TestNoSecretIsInAnyByte(t *testing.T) {
	config, texts := "service: video\nslo: {metric: mean, threshold: 75ms}\n", ""
	for _, p := range planted {
		config += p.config
		texts += p.text + "\n"
	}
	var s Scrubber
	files := []File{{"quell.yaml", s.Config([]byte(config))}, {"journal.txt", s.Text([]byte(texts))}}
	data, err := Archive("quell-bundle", time.Unix(0, 0), files)
	if err != nil {
		t.Fatal(err)
	}
	unpacked := unpack(t, data)
	for _, p := range planted {
		if strings.Contains(unpacked, p.secret) || bytes.Contains(data, []byte(p.secret)) {
			t.Errorf("%s: %s is in the archive:\n%s", p.kind, p.secret, unpacked)
		}
	}
	for _, want := range []string{"service: video", "metric: mean", "threshold: 75ms", "is answered with 403", "failed"} {
		if !strings.Contains(unpacked, want) {
			t.Errorf("the archive lacks %q:\n%s", want, unpacked)
		}
	}
}

func unpack(t *testing.T, data []byte) (text string) {
	packed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(packed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return text
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		text += header.Name + "\n" + string(content)
	}
}

func TestBadConfigurationIsLeftOut(t *testing.T) {
	var s Scrubber
	if out := s.Config([]byte("a: [correct-horse")); bytes.Contains(out, []byte("horse")) {
		t.Errorf("%s", out)
	}
	if out := s.Text([]byte("said [correct-horse once")); bytes.Contains(out, []byte("horse")) {
		t.Errorf("%s", out)
	}
}

func TestLongFilesAreCut(t *testing.T) {
	data, err := Archive("b", time.Unix(0, 0), []File{{"long", make([]byte, mostFile+1)}})
	if err != nil {
		t.Fatal(err)
	}
	if text := unpack(t, data); !strings.HasSuffix(text, "(the rest was left out)\n") {
		t.Error("a long file is not cut")
	}
}

func FuzzText(f *testing.F) {
	f.Add("password: hunter22", "hunter22")
	f.Fuzz(func(t *testing.T, text, secret string) {
		secret = strings.Join(strings.Fields(secret), "")
		if len(secret) < shortest || strings.Contains(Removed, secret) {
			return
		}
		var s Scrubber
		s.Hide(secret)
		if out := s.Text([]byte(fmt.Sprintf("%s %s %s", text, secret, text))); bytes.Contains(out, []byte(secret)) {
			t.Errorf("%q is in %q", secret, out)
		}
	})
}
