package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/config"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Work with configuration files", Args: cobra.NoArgs, RunE: showHelp}
	cmd.AddCommand(&cobra.Command{
		Use:   "check FILE",
		Short: "Report every mistake in a configuration, with line and column",
		Args:  named("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := config.Load(args[0])
			if err != nil {
				return err
			}
			s := file.Service
			fmt.Fprintf(cmd.OutOrStdout(), "%s: ok: service %s, policy %s, %s at most %s, sampled every %s, %d to %d instances, mode %s\n",
				args[0], s.Name, s.Policy.Name, s.SLO.Metric, s.SLO.Threshold, s.Sampling, s.Group.Min, s.Group.Max, s.Mode)
			return nil
		},
	}, &cobra.Command{
		Use:   "reference",
		Short: "Print every configuration key with its default and meaning",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return config.Reference(cmd.OutOrStdout())
		},
	})
	return cmd
}

// showHelp is what a command that only groups others does.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }
