package page_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quellhq/quell/internal/need"
)

// patience is how long a busy machine may take for what takes a moment on an idle one.
const patience = 90 * time.Second

// browser is a headless Chromium with one page, commanded by the DevTools protocol over pipes: JSON messages that end with a NUL.
type browser struct {
	t       *testing.T
	out     *os.File
	session string

	mu      sync.Mutex
	last    int
	answers map[int]chan message
	logged  []string // errors that the page wrote to the console
}

type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct{ Message string }
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	theirs, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(need.Browser(t), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	theirOut.Close()
	b := &browser{t: t, out: out, answers: map[int]chan message{}}
	read := make(chan struct{})
	go func() { defer close(read); b.read(bufio.NewReader(in)) }()
	t.Cleanup(func() {
		_, _ = b.call("Browser.close", nil)
		out.Close()
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
		in.Close()
		<-read
	})
	var target struct{ TargetID string }
	b.must("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.must("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.must(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) read(in *bufio.Reader) {
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		refused := strings.Contains(string(m.Params), "(Conflict)") // a command that the controller refused
		if (m.Method == "Log.entryAdded" || m.Method == "Runtime.exceptionThrown") && !refused {
			b.logged = append(b.logged, string(m.Params))
		}
		answer := b.answers[m.ID]
		delete(b.answers, m.ID)
		b.mu.Unlock()
		if answer != nil {
			answer <- m
		}
	}
}

func (b *browser) call(method string, params any) (json.RawMessage, error) {
	answer := make(chan message, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.answers[id] = answer
	b.mu.Unlock()
	text, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" || method == "Browser.close" {
		text, err = json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	}
	if err != nil {
		return nil, err
	}
	if _, err := b.out.Write(append(text, 0)); err != nil {
		return nil, err
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			return nil, errors.New(m.Error.Message)
		}
		return m.Result, nil
	case <-time.After(patience):
		return nil, fmt.Errorf("%s: no answer", method)
	}
}

// midday gives the page a time zone where it is noon: an hour of moments around now is then of one day.
func (b *browser) midday() {
	b.zone(fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12))
}

func (b *browser) zone(name string) {
	b.must("Emulation.setTimezoneOverride", map[string]any{"timezoneId": name}, nil)
}

func (b *browser) must(method string, params, result any) {
	b.t.Helper()
	text, err := b.call(method, params)
	if err == nil && result != nil {
		err = json.Unmarshal(text, result)
	}
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

// eval returns the value of an expression, which may be a promise.
func (b *browser) eval(expression string, result any) {
	b.t.Helper()
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.must("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &got)
	if got.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, got.ExceptionDetails)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(got.Result.Value, result); err != nil {
		b.t.Fatalf("%s: %v in %s", expression, err, got.Result.Value)
	}
}

// await waits until an expression is true.
func (b *browser) await(expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		var ok bool
		b.eval("Boolean("+expression+")", &ok)
		if ok {
			return
		}
		if time.Now().After(deadline) {
			var text string
			b.eval("document.body.innerText", &text)
			b.t.Fatalf("not true in time: %s\nthe page says:\n%s\nconsole: %q", expression, text, b.errors())
		}
	}
}

// awaitReload waits until an expression is true on a page that loads itself again, which ends evaluations with an error.
func (b *browser) awaitReload(expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		text, err := b.call("Runtime.evaluate", map[string]any{"expression": "Boolean(" + expression + ")", "returnByValue": true})
		var got struct{ Result struct{ Value any } }
		if err == nil && json.Unmarshal(text, &got) == nil && got.Result.Value == true {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("not true in time: %s: %s %v\nconsole: %q", expression, text, err, b.errors())
		}
	}
}

func (b *browser) errors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.logged...)
}

func (b *browser) open(address string) { b.must("Page.navigate", map[string]any{"url": address}, nil) }

// size sets the size of the window; dark asks for dark colours.
func (b *browser) size(width, height int, dark bool) {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.must("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1,
		"mobile": width < 600}, nil)
	b.must("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme",
		"value": scheme}}}, nil)
}

// shoot writes a picture of the page, if the environment names a folder for pictures.
func (b *browser) shoot(name string) {
	folder := os.Getenv("QUELL_SHOTS")
	if folder == "" {
		return
	}
	var picture struct{ Data string }
	b.must("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &picture)
	data, err := base64.StdEncoding.DecodeString(picture.Data)
	if err == nil {
		err = os.WriteFile(folder+"/"+name+".png", data, 0o644)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// Pictures of a running page, for people: QUELL_PAGE is its address.
func TestPicturesOfARunningPage(t *testing.T) {
	address := os.Getenv("QUELL_PAGE")
	if address == "" {
		t.Skip("for people only: set QUELL_PAGE and QUELL_SHOTS")
	}
	b := newBrowser(t)
	for name, v := range map[string]struct {
		width, height int
		dark          bool
	}{"desktop": {1280, 1500, false}, "dark": {1280, 1500, true}, "phone": {390, 1800, false}} {
		b.size(v.width, v.height, v.dark)
		b.open(address)
		b.await("document.querySelectorAll('#rows tr').length > 0")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		<-ctx.Done()
		cancel()
		b.shoot(name)
	}
	t.Log(b.errors())
}
