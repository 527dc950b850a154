package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/testbed/kernel"
)

func labCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Real machines in miniature: network namespaces, shaped links and cgroups of this kernel (Linux, root)",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(labListCommand(), labRunCommand(), labValidateCommand(), labProbingCommand(), labCleanCommand(), labWorkCommand(), labInstanceCommand(), labProbeCommand())
	return cmd
}

func labCleanCommand() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "clean [--prefix NAME]",
		Short: "Remove what a killed lab left behind: its processes, namespaces, cgroups and sockets",
		Long:  "Removes what a lab of that prefix has made and nothing else: processes in its namespaces and cgroups, the namespaces\nwith their links, the cgroups, and its folder below /run. A lab in use is taken down.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			removed, err := kernel.Clean(prefix)
			for _, what := range removed {
				fmt.Fprintln(cmd.OutOrStdout(), "removed", what)
			}
			if len(removed) == 0 && err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "nothing is left of a lab of prefix %s\n", prefix)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", kernel.DefaultPrefix, "what the lab's names begin with")
	return cmd
}

// labWorkCommand is what a lab's instance runs for work that the processor bounds.
func labWorkCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:    "work --listen HOST:PORT",
		Short:  "Serve GET /work?cpu=5ms, which burns that much processor time",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serveWork(cmd.Context(), listen)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "where to serve")
	_ = cmd.MarkFlagRequired("listen")
	return cmd
}

// serveWork serves until ctx ends or the process that this one must not outlive is gone.
func serveWork(ctx context.Context, address string) error {
	lifeline, err := daemon.Lifeline()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if lifeline != nil {
		defer lifeline.Close()
		go func() {
			_, _ = lifeline.Read(make([]byte, 1)) // ends with the other end
			cancel()
		}()
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return userErrorf("--listen: %w", err)
	}
	server := &http.Server{Handler: kernel.Work(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	const grace = 5 * time.Second
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer stop()
	err = server.Shutdown(ctx)
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return err
}
