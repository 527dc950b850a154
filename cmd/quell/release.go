package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/daemon"
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
			answer, err := ask(cmd, path, bus.Command{Name: bus.Release})
			if err == nil {
				return tellReleased(cmd.OutOrStdout(), answer)
			}
			if errors.As(err, new(refusal)) {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "no controller is asked: "+quell.Printable(err.Error(), longestText))
			unknown, err := daemon.Release(cmd.Context(), path, newLogger(cmd.ErrOrStderr()))
			tellUnknown(cmd.OutOrStdout(), unknown)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "the balancer is released: Quell manages nothing there")
			}
			return err
		},
	}
	configFlag(cmd, &path)
	return cmd
}

// tellReleased says what a controller did. What it could not do yet is an error, although it will try again.
func tellReleased(w io.Writer, answer json.RawMessage) error {
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
	tellUnknown(w, r.Unknown)
	if len(r.Left) > 0 {
		return errors.New(quell.Printable(r.Text(), longestText))
	}
	_, err := fmt.Fprintln(w, quell.Printable(r.Text(), longestText))
	return err
}

func tellUnknown(w io.Writer, unknown []string) {
	for _, text := range unknown {
		fmt.Fprintln(w, "not known: "+quell.Printable(text, longestText))
	}
}
