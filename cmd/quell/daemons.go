package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/lab/experiment"
)

func controllerCommand() *cobra.Command {
	var path string
	var logs logOptions
	cmd := &cobra.Command{
		Use:   "controller [--config FILE]",
		Short: "Run the controller of a service, or of several; SIGHUP reloads the configuration and the models",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reload := make(chan os.Signal, 1)
			signal.Notify(reload, syscall.SIGHUP)
			defer signal.Stop(reload)
			return logs.run(cmd, path, func(ctx context.Context, log *slog.Logger) error { return daemon.Controller(ctx, path, reload, log) })
		},
	}
	configFlag(cmd, &path)
	logs.add(cmd)
	return cmd
}

func agentCommand() *cobra.Command {
	var path, instance, node string
	var logs logOptions
	cmd := &cobra.Command{
		Use:   "agent [--config FILE] [--instance ID | --node NAME]",
		Short: "Report readings of this machine and answer probes; SIGHUP reloads the configuration",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reload := make(chan os.Signal, 1)
			signal.Notify(reload, syscall.SIGHUP)
			defer signal.Stop(reload)
			return logs.run(cmd, path, func(ctx context.Context, log *slog.Logger) error {
				if node != "" {
					return daemon.NodeAgent(ctx, path, node, log)
				}
				return daemon.Agent(ctx, path, instance, reload, log)
			})
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&instance, "instance", "", "id of the instance that this machine is; default: agent.instance of the configuration")
	cmd.Flags().StringVar(&node, "node", "", "name of this machine's node in Kubernetes: reports for all pods of the service there")
	cmd.MarkFlagsMutuallyExclusive("instance", "node")
	logs.add(cmd)
	return cmd
}

func balancerCommand() *cobra.Command {
	var path string
	var run daemon.BalancerRun
	var logs logOptions
	cmd := &cobra.Command{
		Use:   "balancer [--config FILE] [--take-over]",
		Short: "Run the built-in load balancer, and the prober beside it; SIGHUP reloads the configuration",
		Long: "Run the built-in load balancer, and the prober beside it. SIGHUP reloads the configuration. SIGTERM or SIGINT ends it when\n" +
			"open requests have finished, after balancer.drain at the latest; a second one ends it at once.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reload, stop := make(chan os.Signal, 1), make(chan os.Signal, 2)
			signal.Notify(reload, syscall.SIGHUP)
			defer signal.Stop(reload)
			signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
			defer signal.Stop(stop)
			run.Reload, run.Stop = reload, stop
			return logs.run(cmd, path, func(ctx context.Context, log *slog.Logger) error { return daemon.Balancer(ctx, path, run, log) })
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&run.Service, "service", "", "the service, if the configuration names several")
	cmd.Flags().BoolVar(&run.TakeOver, "take-over", false,
		"take the sockets over from the running balancer, which lets its open requests finish and ends")
	logs.add(cmd)
	return cmd
}

// lingerCommand is the command that the controller starts to outlive it.
func lingerCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:    "linger --config FILE",
		Short:  "Stop the controller's instances when no controller has run for scaler.linger",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return daemon.Linger(cmd.Context(), path, newLogger(cmd.ErrOrStderr()))
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "the service's configuration")
	return cmd
}

func hostCommand() *cobra.Command {
	h := experiment.Host{}
	cmd := &cobra.Command{
		Use:    "host",
		Short:  "Run an emulated machine with a file service on it, for demonstrations and tests",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return h.Run(cmd.Context(), newLogger(cmd.ErrOrStderr()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&h.ID, "id", "h1", "id of the machine")
	f.StringVar(&h.Instance, "instance", "i1", "id of the instance on it")
	f.StringVar(&h.Listen, "listen", "127.0.0.1:9001", "address of the file service")
	f.StringVar(&h.ProbeListen, "probe-listen", "", "address of the probe server")
	f.StringVar(&h.InterferenceFile, "interference", "", "JSON file that says what the neighbours take, as in {\"network\":0.4}")
	f.Int64Var(&h.Bandwidth, "bandwidth", 40_000_000, "bandwidth of the machine's link, in bit/s")
	f.Int64Var(&h.FileSize, "file-size", 50_000, "bytes of the served file")
	durationFlag(f, &h.Boot, "boot", 0, "how long the machine takes to start")
	f.Uint64Var(&h.Seed, "seed", 1, "seed of the neighbours' flows")
	f.StringVar(&h.Config, "config", "", "the service's configuration; without it no agent and no probe server run on the machine")
	return cmd
}
