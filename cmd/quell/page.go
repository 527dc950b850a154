package main

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/terminal"
)

func pageCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "page [--config FILE]",
		Short: "Print the address of the controller's web page, with a log-in for the holder of the operator's credential. It is good once, " +
			"for five minutes",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reply, err := ask(cmd, path, bus.Command{Name: bus.Page})
			if err != nil {
				return err
			}
			var page struct{ Address, Ticket string }
			if err := json.Unmarshal(reply, &page); err != nil {
				return fmt.Errorf("reading the address of the page: %w", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s#ticket=%s\n", terminal.Printable(page.Address, longestText), url.QueryEscape(page.Ticket))
			return err
		},
	}
	configFlag(cmd, &path)
	oneServiceFlag(cmd)
	return cmd
}
