// Package lifeline ends processes when an ancestor ends in any way. Each process holds one end of a pipe, and the ancestor holds
// the other end. The pipe carries no data; only its closing matters.
package lifeline

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/quellhq/quell"
)

// Variable names the file descriptor of the pipe in a process's environment.
const Variable = "QUELL_LIFELINE_FD"

// Inherited returns the pipe that this process was given, or nil.
func Inherited() (*os.File, error) {
	text := os.Getenv(Variable)
	if text == "" {
		return nil, nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return nil, &quell.UserError{Err: fmt.Errorf("%s=%q is not the number of an inherited file", Variable, text)}
	}
	return os.NewFile(uintptr(fd), "lifeline"), nil
}

// Tie returns a context that ends with this process's lifeline, if it has one, and the lifeline itself.
func Tie(ctx context.Context) (context.Context, context.CancelFunc, *os.File, error) {
	pipe, err := Inherited()
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	if pipe != nil {
		go func() {
			<-Broken(pipe)
			cancel()
		}()
	}
	return ctx, cancel, pipe, nil
}

// Broken returns a channel that is closed when the other end of the pipe is closed.
func Broken(pipe *os.File) <-chan struct{} {
	broken := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, pipe)
		close(broken)
	}()
	return broken
}

// Give passes a pipe to a process that will be started.
func Give(cmd *exec.Cmd, pipe *os.File) {
	cmd.ExtraFiles = append(cmd.ExtraFiles, pipe)
	cmd.Env = append(Without(cmd.Environ()), fmt.Sprintf("%s=%d", Variable, 2+len(cmd.ExtraFiles)))
}

// Without returns the environment without the variable of this process's lifeline, because its children must not use that pipe.
func Without(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, Variable+"=") })
}
