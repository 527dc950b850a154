package main

import (
	"github.com/spf13/cobra"

	"github.com/quellhq/quell/lab/experiment"
)

func labInstanceCommand() *cobra.Command {
	i := experiment.Instance{}
	var fileSize, chunkSize int64
	cmd := &cobra.Command{
		Use:    "instance",
		Short:  "Run nginx, or the service of dynamic work, and an agent on a lab's host; the lab's controller calls it",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i.Files = map[string]int64{"file": fileSize, "chunk": chunkSize}
			return i.Run(cmd.Context(), newLogger(cmd.ErrOrStderr()))
		},
	}
	f := cmd.Flags()
	configFlag(cmd, &i.Config)
	f.StringVar(&i.Prefix, "prefix", "quell", "of the lab")
	f.StringVar(&i.Host, "host", "h1", "host of the lab to run on")
	f.StringVar(&i.ID, "id", "i1", "of the instance")
	f.StringVar(&i.Dir, "dir", ".", "folder for configuration, content and logs, one below it for each host")
	durationFlag(f, &i.Boot, "boot", 0, "how long the machine takes to start")
	f.Int64Var(&fileSize, "file-size", 50_000, "bytes of the served file")
	f.Int64Var(&chunkSize, "chunk-size", 0, "bytes of a whole chunk of the served videos")
	f.BoolVar(&i.Work, "work", false, "run the service of dynamic work instead of nginx")
	f.StringVar(&i.Calendar, "calendar", "", "run the event calendar with the data in this folder instead of nginx")
	f.BoolVar(&i.Disk, "disk", false, "with --work: take requests for disk operations; with --calendar: write visits past the cache")
	f.BoolVar(&i.Memory, "memory", false, "with --work: take requests for memory")
	f.StringVar(&i.Credits, "credits", "", "file with the credits that make the instance burstable")
	f.BoolVar(&i.Training, "training", false, "run a probe server with a meter instead of the agent")
	f.BoolVar(&i.Aside, "aside", false, "run the agent outside the host's control group")
	return cmd
}

func labProbeCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:    "probe",
		Short:  "Answer probes and report what the service used, on a machine in training",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return experiment.Probe(cmd.Context(), path, newLogger(cmd.ErrOrStderr()))
		},
	}
	configFlag(cmd, &path)
	return cmd
}
