package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quellhq/quell/lab/experiment"

	"github.com/quellhq/quell/internal/need"
)

// block is a shell block of the README with its mark: `<!-- test: run -->` for commands that end by themselves, `<!--
// test: start, until COMMAND -->` for a process that keeps running, `<!-- test: skip, REASON -->`.
type block struct {
	mark, argument, text string
}

var marked = regexp.MustCompile("(?s)(?:<!-- test: (\\w+)(?:, ([^\n]*?))? -->\n)?```sh\n(.*?)```\n")

func readmeBlocks(t *testing.T) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	for _, m := range marked.FindAllStringSubmatch(string(text), -1) {
		b := block{mark: m[1], argument: strings.TrimPrefix(m[2], "until "), text: m[3]}
		if b.mark == "" {
			t.Errorf("a shell block without a mark: say whether it is run\n%s", b.text)
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// TestReadme runs the README's commands as they are, in order, in one folder, with free ports. Skipped blocks say
// why; TestDemo covers the demo.
func TestReadme(t *testing.T) {
	t.Parallel()
	need.Program(t, "curl")
	r := newReader(t)
	ran := 0
	for _, b := range readmeBlocks(t) {
		switch b.mark {
		case "run":
			r.run(b.text)
			ran++
		case "start":
			r.start(b.text, b.argument)
			ran++
		case "skip":
			if b.argument == "" {
				t.Errorf("a block is skipped without a reason:\n%s", b.text)
			}
		default:
			t.Errorf("unknown mark %q", b.mark)
		}
	}
	if ran < 5 {
		t.Errorf("%d blocks were run only: is the README marked?", ran)
	}
}

// reader runs the README's commands.
type reader struct {
	t     *testing.T
	dir   string // folder of the next command
	ports *strings.Replacer
}

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{t: t, dir: t.TempDir(), ports: freePorts(t, "4222", "8080", "9464", "9465")}
	examples := filepath.Join(r.dir, "examples")
	if err := os.CopyFS(examples, os.DirFS(filepath.Join(repository(t), "examples"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(examples, "process.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("linger: 30s"), []byte("lifeline: true"), 1) // nothing may outlive this test
	if err := os.WriteFile(path, []byte(r.ports.Replace(string(text))), 0o644); err != nil {
		t.Fatal(err)
	}
	return r
}

// freePorts replaces the documented ports of this machine by free ones.
func freePorts(t *testing.T, documented ...string) *strings.Replacer {
	t.Helper()
	free, err := new(experiment.Ports).Free(len(documented))
	if err != nil {
		t.Fatal(err)
	}
	var pairs []string
	for i, port := range documented {
		pairs = append(pairs, "127.0.0.1:"+port, free[i])
	}
	return strings.NewReplacer(pairs...)
}

// run executes a block in one shell and keeps the folder to which it changed.
func (r *reader) run(text string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	where := filepath.Join(r.t.TempDir(), "pwd")
	cmd := exec.CommandContext(ctx, "sh", "-ec", r.ports.Replace(text)+"\npwd >"+where)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%v in\n%s\n%s", err, text, out)
	}
	pwd, err := os.ReadFile(where)
	if err != nil {
		r.t.Fatal(err)
	}
	r.dir = strings.TrimSpace(string(pwd))
}

// start runs a command until the end of the test, and waits until the command given in the mark succeeds.
func (r *reader) start(text, until string) {
	r.t.Helper()
	line := strings.Fields(r.ports.Replace(text))
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir = r.dir
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				r.t.Errorf("%s: %v\n%s", text, err, log.String())
			}
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
			r.t.Errorf("%s did not end within 30 s of SIGTERM\n%s", text, log.String())
		}
	})
	if err := r.await(until, ended); err != nil {
		r.t.Fatalf("%s: %v", text, err)
	}
}

// await tries a command until it succeeds.
func (r *reader) await(until string, ended chan error) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		cmd := exec.Command("sh", "-c", until)
		cmd.Dir = r.dir
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("it ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%q did not succeed within 30 s: %s", until, out)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
