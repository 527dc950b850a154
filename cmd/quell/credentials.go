package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/terminal"
)

func credentialsCommand() *cobra.Command {
	var path, out string
	var good time.Duration
	cmd := &cobra.Command{
		Use:   "credentials ROLE [ID]",
		Short: "Make a credential for the bus, on the controller's machine; ROLE is sensor, balancer, controller, operator or leaf",
		Long: `A credential says who a process is and what it may do. ID is the instance of a sensor, balancer.name of a balancer, and the
name of a person for an operator, where it stands in the journal beside what they did.

  sensor      publish readings of its own instance
  balancer    publish readings of every instance, in its own name
  controller  everything
  leaf        carry readings from a leaf node to an external NATS, and commands back (docs/scale.md)
  operator    status, journal, pause, resume, override and the other commands

Processes on the controller's machine that run as its user find theirs by themselves. For another machine, copy the file there
(mode 0600) and name it in bus.credentials. No restart is needed.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ring, grant, err := keyring(cmd, path, args)
			if err != nil {
				return err
			}
			return makeCredential(cmd.OutOrStdout(), ring, grant, good, out)
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	cmd.Flags().StringVar(&out, "out", "", "file to write; - for standard output; default: in data, where processes of this machine look")
	durationFlag(cmd.Flags(), &good, "expires", 0, "how long the credential is valid, as in 90d; 0s is for ever")
	cmd.AddCommand(listCredentials(), revokeCredentials(), natsCredentials())
	return cmd
}

// keyring returns the keyring of a configuration, and the grant (role and name) that the arguments describe.
func keyring(cmd *cobra.Command, path string, args []string) (ring auth.Keyring, g auth.Grant, err error) {
	file, err := holderOf(cmd, path, len(args) > 0)
	if err != nil {
		return ring, g, err
	}
	ring = auth.Keyring{Dir: file.Bus.Keyring, Own: file.Bus.Own}
	if len(args) == 0 {
		return ring, g, nil
	}
	g = auth.Grant{Role: auth.Role(args[0]), Service: file.Service.Name}
	switch {
	case !slices.Contains(auth.Roles, g.Role):
		return ring, g, userErrorf("unknown role %q: give sensor, balancer, controller, operator or leaf", args[0])
	case len(args) > 1:
		g.ID = args[1]
	case g.Role == auth.Sensor:
		return ring, g, userErrorf("name the instance: quell credentials sensor INSTANCE")
	default:
		g.ID = string(g.Role)
	}
	return ring, g, nil
}

// holderOf reads the service whose keyring a command uses. If the command is not for one service, any will do, because they share the
// keyring.
func holderOf(cmd *cobra.Command, path string, forOne bool) (*config.File, error) {
	if forOne {
		return contact(cmd, path)
	}
	r, err := services(cmd, path)
	switch {
	case err != nil:
		return nil, err
	case len(r.list) == 0:
		return nil, r.bad[0].Err
	}
	return r.list[0], nil
}

func makeCredential(w io.Writer, ring auth.Keyring, g auth.Grant, good time.Duration, out string) error {
	if err := ring.Make(); err != nil {
		return err
	}
	if out == "" {
		if _, err := ring.Keep(g, good); err != nil {
			return err
		}
		return saidWhere(w, ring.Path(g), g)
	}
	text, err := ring.Issue(g, good)
	if err != nil {
		return err
	}
	if out == "-" {
		_, err := w.Write(text)
		return err
	}
	write, err := reserve(out, "credential")
	if err != nil {
		return err
	}
	if err := write(text); err != nil {
		return err
	}
	return saidWhere(w, out, g)
}

// reserve creates the file of a secret, which must not exist, before the secret is written.
func reserve(path, what string) (write func([]byte) error, err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write the %s: %w", what, err)
	}
	return func(text []byte) error {
		if _, err := file.Write(text); err != nil {
			file.Close()
			return fmt.Errorf("write the %s: %w", what, err)
		}
		return file.Close()
	}, nil
}

// expiry is a time in a list, "never" for none.
func expiry(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format(time.DateTime)
}

func saidWhere(w io.Writer, path string, g auth.Grant) error {
	_, err := fmt.Fprintf(w, "%s: %s of service %s. On another machine: copy it there, mode 0600, and set bus.credentials to it\n", path, g,
		g.Service)
	return err
}

func listCredentials() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "list", Short: "List the credentials that were made here", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ring, _, err := keyring(cmd, path, nil)
			if err != nil {
				return err
			}
			list, err := ring.List()
			if err != nil {
				return err
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "MADE\tROLE\tID\tEXPIRES\tSTATE\tKEY")
			for _, i := range list {
				expires, state := expiry(i.Expires), "good"
				if i.Token != "" || i.Proof != "" {
					expires = "renewed"
				}
				switch {
				case i.Revoked:
					state = "revoked"
				case !i.Expires.IsZero() && time.Now().After(i.Expires):
					state = "expired"
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", i.At.Local().Format(time.DateTime), i.Role, terminal.Printable(i.ID, longestText), expires,
					state, i.Key)
			}
			return t.Flush()
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	return cmd
}

func revokeCredentials() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "revoke ROLE [ID]", Short: "Revoke every credential of that role and id that was made so far", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ring, grant, err := keyring(cmd, path, args)
			if err != nil {
				return err
			}
			if err := ring.Revoke(grant); err != nil {
				return err
			}
			again := ""
			if ring.External() {
				again = ". The external NATS must be given the new `quell credentials nats`"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"revoked every credential of %s made so far; a running controller ends their connections within two seconds%s\n", grant, again)
			return err
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	return cmd
}

func natsCredentials() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "nats", Short: "Print what an external NATS needs in its configuration to accept these credentials", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ring, _, err := keyring(cmd, path, nil)
			if err != nil {
				return err
			}
			if err := ring.Make(); err != nil {
				return err
			}
			text, err := auth.NATSConfig(ring)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"# Include this in the configuration of every server, beside jetstream and cluster. The keys are in\n# %s.\n%s",
				strings.TrimSuffix(ring.Dir, string(filepath.Separator)), text)
			return err
		},
	}
	configFlag(cmd, &path)
	serviceFlag(cmd)
	return cmd
}
