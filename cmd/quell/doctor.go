package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/setting"
)

func doctorCommand() *cobra.Command {
	var path, archive string
	var sensors, asJSON bool
	var period time.Duration
	cmd := &cobra.Command{
		Use:   "doctor [--config FILE] [--service NAME] [--sensors] [--bundle FILE] [--json]",
		Short: "Say what is wrong with a service's set-up, each with the command that mends it; --sensors: which sensors this machine offers",
		Long: "Ask the bus, the controller, the balancer, its log, the instances and their probe servers, read the journal of the last hour,\n" +
			"and say what is wrong, each with what mends it. Nothing is changed. The exit status is 1 if something is wrong.\n\n" +
			"With --sensors, measure this machine for two periods as its agent does, and show what was measured, what is missing, and why.\n" +
			"Without a configuration, the whole machine is measured, and its processors and memory are probed.\n\n" +
			"With --bundle, write an archive for a bug report: findings, status, journal and configuration without secrets.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !sensors {
				return diagnoseService(cmd, path, archive, asJSON)
			}
			if archive != "" {
				return userErrorf("--sensors and --bundle exclude each other")
			}
			if period < config.ShortestPeriod || period > config.LongestPeriod {
				return userErrorf("--period %s: must be between %s and %s", setting.FormatDuration(period),
					setting.FormatDuration(config.ShortestPeriod), setting.FormatDuration(config.LongestPeriod))
			}
			file, err := examined(cmd, path)
			if err != nil {
				return err
			}
			list, err := daemon.Signals(cmd.Context(), *file, period)
			if err != nil {
				return err
			}
			printable(&list)
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(list)
			}
			return writeSignals(cmd.OutOrStdout(), list)
		},
	}
	addConfigFlag(cmd, &path)
	serviceFlag(cmd)
	cmd.Flags().BoolVar(&sensors, "sensors", false, "examine the sensors of this machine")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&archive, "bundle", "", "write an archive for a bug report, without secrets, into this file; - is standard output")
	durationFlag(cmd.Flags(), &period, "period", 2*time.Second, "length of a period")
	return cmd
}

// examined returns the configuration of the machine. Without a file it is the default one, with probes of processors and memory.
func examined(cmd *cobra.Command, path string) (*config.File, error) {
	if !cmd.Flags().Changed("config") {
		found, err := defaultConfig(os.Getenv(configVariable), configPlaces)
		if _, ok := errors.AsType[*quell.UserError](err); ok {
			file := daemon.Drivers().Defaults()
			file.Agent.Probing.Resources = []quell.Resource{quell.CPU, quell.Memory}
			return &file, nil
		}
		path = found
	}
	fleet, err := daemon.Drivers().LoadFleet(path)
	if err != nil {
		return nil, err
	}
	return fleet.Services[0], nil // an agent serves all of them with the same sensors
}

// writeSignals prints the signals that the machine offers, then those that are missing.
func writeSignals(w io.Writer, list []sensor.Signal) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SIGNAL\tNOW")
	for _, s := range list {
		if s.Now != "" {
			fmt.Fprintf(t, "%s\t%s\n", s.Name, s.Now)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	evidence := cmp.Or(sensor.Evidence(list), "no signal of this machine")
	fmt.Fprintf(w, "\nInterference with processors, caches and memory is shown by %s.\n", evidence)
	for i := 0; i < len(list); {
		alike := i + 1
		for alike < len(list) && list[alike].Why == list[i].Why && list[alike].Do == list[i].Do {
			alike++
		}
		if err := writeMissing(w, list[i:alike]); err != nil {
			return err
		}
		i = alike
	}
	return nil
}

// writeMissing prints why signals are missing, which is the same for all of them.
func writeMissing(w io.Writer, alike []sensor.Signal) error {
	if alike[0].Now != "" {
		return nil
	}
	var names []string
	for _, s := range alike {
		names = append(names, s.Name)
	}
	text := fmt.Sprintf("\nmissing: %s\n  why: %s\n", strings.Join(names, ", "), alike[0].Why)
	if alike[0].Do != "" {
		text += fmt.Sprintf("  to do: %s\n", alike[0].Do)
	}
	_, err := io.WriteString(w, text)
	return err
}
