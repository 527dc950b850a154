package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
)

// A person at a terminal is asked before anything is done, and only a yes counts.
func TestConsent(t *testing.T) {
	for typed, agreed := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "yes please\n": false, "\x04": false} {
		person, terminal, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(person, typed); err != nil {
			t.Fatal(err)
		}
		said, err := consented(terminal, false)
		if !strings.HasSuffix(said, "Go on? [y/N] ") || !strings.Contains(said, "web-1 will be out of rotation for up to 10m0s") {
			t.Errorf("%q: it asked %q", typed, said)
		}
		if (err == nil) != agreed || err != nil && err.Error() != "nothing was done: the answer was not yes" {
			t.Errorf("%q: %v", typed, err)
		}
		terminal.Close()
		person.Close()
	}
}

// Nobody is asked with --yes, or where nobody can answer.
func TestConsentWithoutAPerson(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var mistake *quell.UserError
	said, err := consented(null, false)
	if !errors.As(err, &mistake) || !strings.Contains(err.Error(), "add --yes") || strings.Contains(said, "Go on?") {
		t.Errorf("%v after %q", err, said)
	}
	if said, err := consented(null, true); err != nil || strings.Contains(said, "Go on?") {
		t.Errorf("with --yes: %v after %q", err, said)
	}
}

func consented(in *os.File, yes bool) (said string, err error) {
	var errs bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetIn(in)
	cmd.SetErr(&errs)
	o := &onMachine{cmd: cmd, instance: "web-1", limit: 10 * time.Minute, yes: yes}
	err = o.consent()
	return errs.String(), err
}
