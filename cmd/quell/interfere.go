package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/interfere"
)

// interfereCommand is what an agent starts during a training; see interfere.Options.Args.
func interfereCommand() *cobra.Command {
	var o interfere.Options
	cmd := &cobra.Command{
		Use:    "interfere RESOURCE",
		Short:  "Use a share of this machine's resource until standard input is closed; the agent calls it during a training",
		Hidden: true,
		Args:   named("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Resource = quell.Resource(args[0])
			return interfere.Run(cmd.Context(), o, os.Stdin, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.Float64Var(&o.Use, "use", 0, "the share of the resource that it asks for")
	f.Float64Var(&o.Cores, "cores", 0, "processors of the machine")
	f.Float64Var(&o.Operations, "operations", 0, "operations per second that the disk can carry out")
	f.StringVar(&o.Folder, "folder", "", "where the file is made that the disk's interferer reads")
	durationFlag(f, &o.Lasts, "lasts", 0, "it ends after this time")
	f.Uint64Var(&o.Seed, "seed", 0, "of its bursts")
	return cmd
}
