package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/terminal"
	"github.com/quellhq/quell/tell"
)

// serviceFlag adds --service to a command for which a configuration may name several services.
func serviceFlag(cmd *cobra.Command) {
	cmd.Flags().String("service", "", "one of the services, if the configuration names several; default: all of them, or the only one")
}

// oneServiceFlag adds --service to a command that is for one service only.
func oneServiceFlag(cmd *cobra.Command) {
	cmd.Flags().String("service", "", "the service; needed if the configuration names several")
}

// reached are the services that a command is for.
type reached struct {
	list    []*config.File
	bad     []config.BadService // those whose files cannot be read
	several bool                // the configuration names several services, and --service chose none
}

// services reads how to reach the services of a configuration, or the one that --service names. Mistakes in parts of files that the command
// does not need are only reported.
func services(cmd *cobra.Command, path string) (*reached, error) {
	found, err := daemon.Drivers().LoadContacts(path)
	if err != nil {
		return nil, err
	}
	warnOf(cmd, path, len(found.Mistakes))
	wanted := ""
	if flag := cmd.Flags().Lookup("service"); flag != nil {
		wanted = flag.Value.String()
	}
	if wanted == "" || !found.Several && cmd.Name() == "journal" { // a bus may keep the journals of other services
		return &reached{found.Services, found.Bad, found.Several}, nil
	}
	for _, file := range found.Services {
		if file.Service.Name == wanted {
			return &reached{list: []*config.File{file}}, nil
		}
	}
	text := fmt.Sprintf("%s names no service %q (there are: %s)", path, wanted, namesOf(found.Services))
	for _, bad := range found.Bad {
		text += "; " + badText(bad)
	}
	return nil, userErrorf("%s", text)
}

func namesOf(files []*config.File) string {
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = file.Service.Name
	}
	return strings.Join(names, ", ")
}

// badText says which service's file cannot be read, in one line.
func badText(bad config.BadService) string {
	return fmt.Sprintf("the service of %s was not reached: %s", bad.Path, strings.ReplaceAll(bad.Err.Error(), "\n", "; "))
}

// contact reads how to reach the only service of a configuration, or the one that --service names.
func contact(cmd *cobra.Command, path string) (*config.File, error) {
	r, err := services(cmd, path)
	if err != nil {
		return nil, err
	}
	if r.several {
		return nil, userErrorf("%s names several services: say which with --service (there are: %s)", path, namesOf(r.list))
	}
	return r.list[0], nil
}

// answer is what came of a command for one service.
type answer struct {
	service string
	text    []byte
	err     error
}

// askEach does something for every service at once, so that one that does not answer does not hold up the others. The answers are in the
// order of the file.
func (r *reached) askEach(do func(*config.File) ([]byte, error)) []answer {
	answers := make([]answer, len(r.list))
	var all sync.WaitGroup
	for i, file := range r.list {
		all.Go(func() {
			text, err := do(file)
			answers[i] = answer{file.Service.Name, text, err}
		})
	}
	all.Wait()
	return answers
}

// failures is the error that names every service for which a command failed; nil if there is none. The exit status is that of failed work.
func (r *reached) failures(answers []answer) error {
	if !r.several {
		return answers[0].err
	}
	var lines []string
	for _, a := range answers {
		if a.err != nil {
			lines = append(lines, fmt.Sprintf("service %s: %s", a.service, strings.ReplaceAll(a.err.Error(), "\n", "; ")))
		}
	}
	for _, bad := range r.bad {
		lines = append(lines, badText(bad))
	}
	if len(lines) == 0 {
		return nil
	}
	return errors.New(strings.Join(lines, "\nquell: "))
}

// unanswered returns whether no controller answered at all. One that refuses an order has answered.
func (r *reached) unanswered(answers []answer) bool {
	for _, a := range answers {
		if a.err == nil || errors.As(a.err, new(refusal)) {
			return false
		}
	}
	return len(answers) > 0
}

// named is the name of a service before a text about it; empty if it is the only one.
func (r *reached) named(service string) string {
	if !r.several {
		return ""
	}
	return service + ": "
}

// order sends a command to every service, prints what each did, and returns the services that did it.
func order(cmd *cobra.Command, path string, c bus.Command) (done []*config.File, err error) {
	r, err := services(cmd, path)
	if err != nil {
		return nil, err
	}
	answers := r.askEach(func(file *config.File) ([]byte, error) {
		text, err := askDone(cmd, file, c)
		return []byte(text), err
	})
	for i, a := range answers {
		if a.err != nil {
			continue
		}
		done = append(done, r.list[i])
		text := terminal.Printable(string(a.text), longestText)
		if r.several {
			text = a.service + ": " + text
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), text); err != nil {
			return done, err
		}
	}
	return done, r.failures(answers)
}

// writeStatuses writes a line for each service, or the JSON of all.
func writeStatuses(cmd *cobra.Command, r *reached, asJSON, all bool) error {
	answers := r.askEach(func(file *config.File) ([]byte, error) { return askOne(cmd, file, bus.Command{Name: bus.Status}) })
	if asJSON {
		list := []json.RawMessage{}
		for _, a := range answers {
			if a.err == nil {
				list = append(list, a.text)
			}
		}
		text, err := json.Marshal(list)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n", printableJSON(text))
		return r.failures(answers)
	}
	for i, a := range answers {
		if a.err != nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: does not answer\n", a.service)
			continue
		}
		s, err := readStatus[controller.Status](a.text)
		if err == nil {
			err = writeStatusLine(cmd.OutOrStdout(), s, all)
		}
		answers[i].err = err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "\nquell status --service NAME shows the instances of one")
	return r.failures(answers)
}

// writeStatusLine writes whether a service is well, and whether it is left alone, in one line.
func writeStatusLine(w io.Writer, s controller.Status, all bool) error {
	v := &statusView{Words: tell.Of(&s, clock), w: w, all: all}
	text, _ := v.Objective()
	if _, acting, _ := strings.Cut(v.Acting(), ": "); s.Released != nil || strings.HasPrefix(acting, "changes nothing") {
		name, _, _ := strings.Cut(text, "; objective")
		text = name + "; " + acting
	}
	if n := len(s.LastFailure); n > 0 {
		text += fmt.Sprintf("; %d PROBLEM(S)", n)
	}
	v.line("%s", text)
	return v.fail
}
