package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/daemon"
)

func releaseCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "release [--config FILE]",
		Short: "Put the balancer back as it was before Quell",
		Long: "Put the balancer back as it was before Quell: weights, servers that Quell took out, and none that it added.\n" +
			"Stop the controller first; stop the agents, too: each puts back the parameters and limits of its machine when it stops.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			unknown, err := daemon.Release(cmd.Context(), path, newLogger(cmd.ErrOrStderr()))
			for _, text := range unknown {
				fmt.Fprintln(cmd.OutOrStdout(), "not known: "+quell.Printable(text, longestText))
			}
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "the balancer is released: Quell manages nothing there")
			}
			return err
		},
	}
	configFlag(cmd, &path)
	return cmd
}
