package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/model/modelfile"
	"github.com/quellhq/quell/policy/table"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Work with configuration files", Args: cobra.NoArgs, RunE: showHelp}
	cmd.AddCommand(configCheckCommand(), configShowCommand(), &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a configuration, with which editors complete and check files",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return daemon.Drivers().Schema(cmd.OutOrStdout())
		},
	}, &cobra.Command{
		Use:   "reference",
		Short: "Print every configuration key with its default and meaning",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return daemon.Drivers().Reference(cmd.OutOrStdout())
		},
	})
	return cmd
}

func configShowCommand() *cobra.Command {
	var path string
	var defaults bool
	cmd := &cobra.Command{
		Use:   "show [FILE] [--defaults]",
		Short: "Print what a configuration sets, or with --defaults the values that hold without a file",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case defaults && (len(args) > 0 || path != ""):
				return userErrorf("--defaults shows what holds without a file: leave the file out")
			case defaults:
				return daemon.Drivers().WriteDefaults(cmd.OutOrStdout())
			}
			if err := namedConfig(cmd, args, &path); err != nil {
				return err
			}
			file, err := daemon.Drivers().Load(path)
			if err != nil {
				return err
			}
			return daemon.Drivers().Write(cmd.OutOrStdout(), file)
		},
	}
	addConfigFlag(cmd, &path)
	cmd.Flags().BoolVar(&defaults, "defaults", false, "print every key that has a default, with its value")
	return cmd
}

// namedConfig sets path to the file that is an argument, or finds the one that --config or its default names.
func namedConfig(cmd *cobra.Command, args []string, path *string) error {
	switch {
	case len(args) == 0:
		return findConfig(cmd, path)
	case *path != "":
		return userErrorf("give the file once: %s, or --config %s", args[0], *path)
	}
	*path = args[0]
	return nil
}

func configCheckCommand() *cobra.Command {
	var path string
	var online bool
	cmd := &cobra.Command{
		Use:   "check [FILE] [--online]",
		Short: "Report every mistake in a configuration and in the files it names, with line and column",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := namedConfig(cmd, args, &path); err != nil {
				return err
			}
			fleet, err := checkFleet(path)
			if err != nil {
				return &quell.UserError{Err: err}
			}
			for _, file := range fleet.Services {
				err = errors.Join(err, tellChecked(cmd, file, online))
			}
			return err
		},
	}
	addConfigFlag(cmd, &path)
	cmd.Flags().BoolVar(&online, "online", false,
		"also ask the running parts (bus, controller, balancer, health of instances, probe servers) and the scaler's platform (rights, target)")
	return cmd
}

// tellChecked says what a service without mistakes is and, if online is set, what its running parts answer.
func tellChecked(cmd *cobra.Command, file *config.File, online bool) error {
	if file.Local() {
		own := file.Agent.Policy
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: ok: no service, agents run policy %s, every %s\n", file.Path, own.Chosen.Name, own.Sampling)
		return err
	}
	s := file.Service
	fmt.Fprintf(cmd.OutOrStdout(), "%s: ok: service %s, policy %s, %s at most %s, sampled every %s, %d to %d instances, mode %s\n",
		file.Path, s.Name, s.Policy.Name, s.SLO.Objective(), s.SLO.Threshold, s.Sampling, s.Group.Min, s.Group.Max, s.Mode)
	for _, note := range file.Notes() {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: "+note)
	}
	if !online {
		return nil
	}
	return writeAnswers(cmd.OutOrStdout(), cmd.ErrOrStderr(), daemon.Online(cmd.Context(), file))
}

// checkFleet reads a configuration, and returns all mistakes in it and in its models. What could be read is returned all the same.
func checkFleet(path string) (*config.Fleet, error) {
	fleet, err := daemon.Drivers().CheckFleet(path)
	if fleet != nil {
		for _, file := range fleet.Services {
			err = errors.Join(err, checkModels(file))
		}
	}
	return fleet, err
}

// checkModels checks whether the policy can work with the configured models. It ignores a missing file, which config.Check reports.
func checkModels(file *config.File) error {
	if file == nil || !isFile(file.Trained()) {
		return nil
	}
	models, err := modelfile.Load(file.Models)
	if err != nil {
		return err
	}
	if _, err := table.All.NewEngine(file.Service, models); err != nil {
		return file.Problem("policy.resource", fmt.Sprintf("%s: %v", file.Models, err))
	}
	return nil
}

// writeAnswers prints requests and answers, and returns an error if a part did not answer as it should. Failures go to fails.
func writeAnswers(out, fails io.Writer, answers []daemon.Answer) error {
	failed := 0
	for _, a := range answers {
		w, verdict := out, "ok    "
		if !a.OK {
			w, verdict = fails, "FAILED"
			failed++
		}
		if _, err := fmt.Fprintf(w, "%s  %s: %s\n", verdict, a.Asked, strings.ReplaceAll(a.Got, "\n", "; ")); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d questions failed: quell doctor says what to do about each", failed, len(answers))
	}
	return nil
}

// showHelp is what a command does that only has subcommands.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }
