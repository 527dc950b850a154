package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/terminal"
)

func releaseCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "release [--config FILE]",
		Short: "Put everything back as it was before Quell",
		Long: "Put everything back as it was before Quell: weights, servers that Quell took out, none that it added, and what\n" +
			"agents changed of servers' parameters and of limits. A running controller does this, and changes nothing from\n" +
			"then on until quell resume.\n" +
			"If no controller answers, the command itself puts the balancer back; each agent puts its machine back when it stops.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := services(cmd, path)
			if err != nil {
				return err
			}
			answers := r.askEach(func(file *config.File) ([]byte, error) { return askOne(cmd, file, bus.Command{Name: bus.Release}) })
			if r.unanswered(answers) {
				fmt.Fprintln(cmd.ErrOrStderr(), "no controller is asked: "+terminal.Printable(answers[0].err.Error(), longestText))
				return releaseAlone(cmd, path)
			}
			for i, a := range answers {
				if a.err == nil {
					answers[i].err = tellReleased(cmd.OutOrStdout(), r.named(a.service), a.text)
				}
			}
			return r.failures(answers)
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	return cmd
}

// releaseAlone releases the balancers without a controller.
func releaseAlone(cmd *cobra.Command, path string) error {
	service, _ := cmd.Flags().GetString("service") // the command has the flag
	return daemon.Release(cmd.Context(), path, service, newLogger(cmd.ErrOrStderr()), func(name string, unknown []string, err error) {
		of := ""
		if name != "" {
			of, name = " of service "+name, name+": "
		}
		tellUnknown(cmd.OutOrStdout(), name, unknown)
		if err == nil {
			fmt.Fprintln(cmd.OutOrStdout(), "the balancer"+of+
				" is released: Quell manages nothing there until quell resume, also over a start of the controller")
		}
	})
}

// tellReleased says what a controller did, after a prefix. What it could not do yet is an error, although it will try again.
func tellReleased(w io.Writer, prefix string, answer json.RawMessage) error {
	var body struct {
		Released *controller.Released `json:"released"`
	}
	if err := json.Unmarshal(answer, &body); err != nil {
		return fmt.Errorf("reading the controller's answer: %w", err)
	}
	r := body.Released
	if r == nil {
		return errors.New("the release was ended at once by somebody else: see quell journal")
	}
	tellUnknown(w, prefix, r.Unknown)
	if len(r.Left) > 0 {
		return errors.New(terminal.Printable(r.Text(), longestText))
	}
	_, err := fmt.Fprintln(w, prefix+terminal.Printable(r.Text(), longestText))
	return err
}

func tellUnknown(w io.Writer, prefix string, unknown []string) {
	for _, text := range unknown {
		fmt.Fprintln(w, prefix+"not known: "+terminal.Printable(text, longestText))
	}
}
