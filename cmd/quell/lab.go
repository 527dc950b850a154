package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/lab/testbed/kernel"
)

func labCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Real machines in miniature: network namespaces, shaped links and cgroups of this kernel (Linux, root)",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(labListCommand(), labRunCommand(), labValidateCommand(), labProbingCommand(), labCrosstalkCommand(),
		labAlternateCommand(), labStreamingCommand(), labCleanCommand(), labWorkCommand(), labInstanceCommand(), labProbeCommand())
	return cmd
}

func labCleanCommand() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "clean [--prefix NAME]",
		Short: "Remove what a killed lab left behind: its processes, namespaces, cgroups and sockets",
		Long: "Removes what a lab of that prefix has made and nothing else: processes in its namespaces and cgroups, the namespaces\nwith " +
			"their links, the cgroups, and its folder below /run. A lab in use is taken down.",
		Args: cobra.NoArgs,
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
	cmd.Flags().StringVar(&prefix, "prefix", kernel.DefaultPrefix, "prefix of the names of the lab's namespaces and cgroups")
	return cmd
}

// labWorkCommand is the program that answers the requests of classes on a lab's instance.
func labWorkCommand() *cobra.Command {
	var listen string
	var o kernel.WorkOptions
	var number string
	cmd := &cobra.Command{
		Use:    "work --listen HOST:PORT [--disk FILE] [--memory]",
		Short:  "Serve GET /work?cpu=5ms&disk=2&memory=300us&bytes=1000, which does that much work and answers with so many bytes",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if number != "" {
				var err error
				if o.Workers, err = readNumber(number); err != nil {
					return err
				}
				o.Resized = numbers(cmd.Context(), number, cmd.ErrOrStderr())
			}
			return serveWork(cmd.Context(), listen, o)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "address to listen on, host:port")
	cmd.Flags().StringVar(&o.Disk, "disk", "", "the file that disk operations read; without it, requests for disk operations are refused")
	cmd.Flags().BoolVar(&o.Memory, "memory", false, "keep 64 MiB for requests that read memory; without it, they are refused")
	cmd.Flags().IntVar(&o.Workers, "workers", 0, "threads that send frames of GET /stream?every=40ms&bytes=1000; without it, it is refused")
	cmd.Flags().StringVar(&number, "workers-file", "", "file with the number of these threads, which is read again after SIGHUP")
	durationFlag(cmd.Flags(), &o.Wait, "wait", 0, "how long the storage of a frame takes to answer, which blocks its worker")
	_ = cmd.MarkFlagRequired("listen")
	return cmd
}

// readNumber reads the number of threads from a file.
func readNumber(path string) (int, error) {
	const most = 1000
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, userErrorf("--workers-file: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 1 || n > most {
		return 0, userErrorf("%s: give a number of threads from 1 to %d, not %q", path, most, text)
	}
	return n, nil
}

// numbers sends the number in a file after each SIGHUP, until ctx ends. A number that cannot be is told, and not sent.
func numbers(ctx context.Context, path string, errs io.Writer) <-chan int {
	hangUps, changed := make(chan os.Signal, 1), make(chan int)
	signal.Notify(hangUps, syscall.SIGHUP)
	go func() {
		defer close(changed)
		defer signal.Stop(hangUps)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangUps:
			}
			n, err := readNumber(path)
			if err != nil {
				fmt.Fprintln(errs, err)
				continue
			}
			changed <- n
		}
	}()
	return changed
}

// workThreads is the limit of threads. It is so high that the kernel shares the processors among the requests; with fewer threads
// Go's scheduler would let each request run for 10 ms before the next.
const workThreads = 64

// serveWork answers requests until ctx ends, and then finishes open ones.
func serveWork(ctx context.Context, address string, o kernel.WorkOptions) error {
	handler, err := kernel.Work(o)
	if err != nil {
		return fmt.Errorf("--disk: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return userErrorf("--listen: %w", err)
	}
	runtime.GOMAXPROCS(workThreads)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), kernel.Grace)
	defer stop()
	if err := server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests were still open after %v: %w", kernel.Grace, err), server.Close())
	}
	return nil
}
