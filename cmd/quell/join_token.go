package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/terminal"
	"github.com/quellhq/quell/setting"
)

func joinTokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "join-token",
		Short: "Make, list and revoke join tokens, on the controller's machine",
		Long: `A join token lets agents of new machines get their credentials by themselves. It can do one thing: ask for the credential of an
instance's sensor. The instance must be one that the scaler lists, and must not have joined before. The agent makes its own key, and gets
a credential for it that ends soon and that it renews in time. When an instance leaves the service, its credential is revoked.

Name the file in bus.join of the agents' configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(createJoinToken(), listJoinTokens(), revokeJoinToken())
	return cmd
}

// tokenRing returns the keyring of the service that join tokens are for.
func tokenRing(cmd *cobra.Command, path string) (auth.Keyring, *config.File, error) {
	file, err := contact(cmd, path)
	if err != nil {
		return auth.Keyring{}, nil, err
	}
	return auth.Keyring{Dir: file.Bus.Keyring, Own: file.Bus.Own}, file, nil
}

func createJoinToken() *cobra.Command {
	var path, out string
	var good, lifetime time.Duration
	var uses int
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make a join token; a name is used once", Args: named("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ring, file, err := tokenRing(cmd, path)
			if err != nil {
				return err
			}
			if err := ring.Make(); err != nil {
				return err
			}
			token := auth.Token{Name: args[0], Service: file.Service.Name, Uses: uses, LifetimeS: lifetime.Seconds()}
			write := func([]byte) error { return nil }
			if out = cmp.Or(out, args[0]+".join"); out != "-" {
				if write, err = reserve(out, "join token"); err != nil {
					return err
				}
			}
			text, err := ring.Tokens().Make(token, good)
			if out == "-" {
				if err == nil {
					_, err = cmd.OutOrStdout().Write(text)
				}
				return err
			}
			if err == nil {
				err = write(text)
			}
			if err != nil {
				os.Remove(out)
				return err
			}
			return saidToken(cmd.OutOrStdout(), out, token, good)
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	cmd.Flags().StringVar(&out, "out", "", "file to write; - for standard output; default: NAME.join in this folder")
	cmd.Flags().IntVar(&uses, "uses", 0, "how many instances may join with it; 0: any number")
	durationFlag(cmd.Flags(), &good, "expires", 24*time.Hour, "how long instances may join with it, as in 90d; 0s is for ever")
	durationFlag(cmd.Flags(), &lifetime, "lifetime", auth.DefaultLifetime,
		"how long the credential of an instance is valid; it is renewed after half of that")
	return cmd
}

func saidToken(w io.Writer, path string, t auth.Token, good time.Duration) error {
	uses, until := "any number of instances", "for ever"
	if t.Uses > 0 {
		uses = fmt.Sprintf("%d instance(s)", t.Uses)
	}
	if good > 0 {
		until = "for " + setting.FormatDuration(good)
	}
	_, err := fmt.Fprintf(w, "%s: %s of service %s can join with it, %s. Copy it to the machines, mode 0600, and set bus.join to it\n", path,
		uses, t.Service, until)
	return err
}

func listJoinTokens() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "list", Short: "List the join tokens that were made here", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ring, _, err := keyring(cmd, path, nil)
			if err != nil {
				return err
			}
			list, err := ring.Tokens().List()
			if err != nil {
				return err
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "MADE\tNAME\tSERVICE\tEXPIRES\tUSED\tLIFETIME\tSTATE")
			for _, i := range list {
				used := fmt.Sprint(i.Used)
				if i.Uses > 0 {
					used += fmt.Sprintf(" of %d", i.Uses)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i.At.Local().Format(time.DateTime), terminal.Printable(i.Name, longestText),
					terminal.Printable(i.Service, longestText), expiry(i.Expires), used, setting.FormatDuration(i.Lifetime()), i.State(time.Now()))
			}
			return t.Flush()
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	return cmd
}

func revokeJoinToken() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "revoke NAME", Short: "End a join token; instances that joined with it keep their credentials", Args: named("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ring, file, err := tokenRing(cmd, path)
			if err != nil {
				return err
			}
			if err := ring.Tokens().Revoke(file.Service.Name, args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "revoked the join token %s. Instances that joined with it keep their credentials: "+
				"quell credentials revoke sensor INSTANCE ends one\n", args[0])
			return err
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	return cmd
}
