package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quellhq/quell/setting"
)

// configVariable names the configuration file for every command without --config.
const configVariable = "QUELL_CONFIG"

// configPlaces are tried in turn if neither --config nor the environment variable names a file.
var configPlaces = []string{"./quell.yaml", "/etc/quell/quell.yaml"}

// configFlag adds --config. The path is set when the command runs.
func configFlag(cmd *cobra.Command, path *string) {
	addConfigFlag(cmd, path)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return findConfig(cmd, path) }
}

// addConfigFlag adds --config as configFlag does, but does not look for a default file.
func addConfigFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", "", "configuration file (default: $"+configVariable+", "+strings.Join(configPlaces, ", ")+")")
}

// findConfig sets the path to the configuration file.
func findConfig(cmd *cobra.Command, path *string) (err error) {
	if cmd.Flags().Changed("config") {
		return nil
	}
	*path, err = defaultConfig(os.Getenv(configVariable), configPlaces)
	return err
}

// defaultConfig returns the file that the environment variable names or, if it names none, the first of the places that exists. A
// file that cannot be examined counts as existing, so that the error of reading it says why.
func defaultConfig(environment string, places []string) (string, error) {
	if environment != "" {
		return environment, nil
	}
	for _, place := range places {
		if _, err := os.Stat(place); !errors.Is(err, fs.ErrNotExist) {
			return place, nil
		}
	}
	return "", userErrorf("no configuration file: give --config FILE, set %s, or make %s", configVariable, strings.Join(places, " or "))
}

// durationFlag adds a flag for a duration, written as in a configuration.
func durationFlag(f *pflag.FlagSet, dst *time.Duration, name string, start time.Duration, usage string) {
	*dst = start
	f.Var((*durationValue)(dst), name, usage)
}

type durationValue time.Duration

func (d *durationValue) Set(s string) error {
	v, err := setting.ParseDuration(s)
	if err == nil {
		*d = durationValue(v)
	}
	return err
}

func (d *durationValue) String() string {
	if *d == 0 {
		return ""
	}
	return setting.FormatDuration(time.Duration(*d))
}

func (d *durationValue) Type() string { return "duration" }

// explainFlag says in plain words what is wrong with a flag's value.
func explainFlag(_ *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && strings.IndexAny(unknown.GetSpecifiedShortnames(), "0123456789.") == 0 {
		return fmt.Errorf("-%s: must not be negative", unknown.GetSpecifiedShortnames())
	}
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag, problem := invalid.GetFlag(), fmt.Sprint(invalid.Unwrap())
	switch flag.Value.Type() {
	case "uint64":
		problem = "must be a whole number, not negative"
	case "int", "int64":
		problem = "must be a whole number"
	case "float64":
		problem = "must be a finite number"
	case "bool":
		problem = "must be true or false"
	}
	return fmt.Errorf("--%s %s: %s", flag.Name, invalid.GetValue(), problem)
}
