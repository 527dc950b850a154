package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/internal/build"
)

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version [--json]",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(build.This())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "quell", buildVersion())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print version, commit and platform as JSON")
	return cmd
}

// fingerprint identifies a build of this program; it does not depend on the version.
func fingerprint() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading this program: %w", err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("reading this program: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

func buildVersion() string {
	b := build.This()
	return fmt.Sprintf("%s (%s, %s/%s)", b.Version, b.Go, b.OS, b.Arch)
}
