package lifeline

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/quellhq/quell"
)

func TestNobodyGaveOne(t *testing.T) {
	t.Setenv(Variable, "")
	ctx, cancel, pipe, err := Tie(t.Context())
	if err != nil || pipe != nil || ctx.Err() != nil {
		t.Fatalf("pipe %v, context %v, %v", pipe, ctx.Err(), err)
	}
	cancel()
	<-ctx.Done()
}

func TestRefused(t *testing.T) {
	for _, text := range []string{"x", "2", "-1"} {
		t.Setenv(Variable, text)
		var user *quell.UserError
		if _, err := Inherited(); !errors.As(err, &user) {
			t.Errorf("%s=%s: %v, want a *quell.UserError", Variable, text, err)
		}
	}
}

func TestBroken(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	broken := Broken(read)
	select {
	case <-broken:
		t.Fatal("broken while the other end is held")
	default:
	}
	write.Close()
	<-broken
}

// TestGive checks that a process gets the pipe that it was given, and not that of its parent.
func TestGive(t *testing.T) {
	t.Setenv(Variable, "9")
	cmd := exec.Command("true")
	cmd.ExtraFiles = []*os.File{os.Stdin}
	Give(cmd, os.Stdin)
	if len(cmd.ExtraFiles) != 2 || !slices.Contains(cmd.Env, Variable+"=4") || slices.Contains(cmd.Env, Variable+"=9") {
		t.Errorf("%d files, environment %v", len(cmd.ExtraFiles), cmd.Env)
	}
}
