package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/experiment"
	"github.com/quellhq/quell/testbed/kernel"
)

// ownTraining makes the machines of a training with testbed kernel and has the same command line run inside.
func ownTraining(ctx context.Context, file *config.File, prefix string, errs io.Writer) error {
	if err := kernel.Check("nginx", "iperf3"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "quell-train-")
	if err != nil {
		return err
	}
	var hosts []kernel.Host
	for _, id := range trainingIDs(file) {
		hosts = append(hosts, kernel.Host{ID: id, Network: file.Train.Network})
	}
	return errors.Join(ownLab(ctx, kernel.Options{Prefix: prefix, Dir: dir, Hosts: hosts}, errs), os.RemoveAll(dir))
}

func trainingIDs(file *config.File) []string {
	var ids []string
	for i := range file.Train.Hosts {
		ids = append(ids, fmt.Sprintf("h%d", i+1))
	}
	return ids
}

// trainingHosts are the machines as the player inside trains on them; remove takes their folder away.
func trainingHosts(file *config.File, prefix string, machines experiment.Machines) (hosts *experiment.KernelHosts, remove func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("finding this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "quell-train-")
	if err != nil {
		return nil, nil, err
	}
	return &experiment.KernelHosts{
		Program: program, Dir: dir, Prefix: prefix, Hosts: trainingIDs(file), Machines: machines, Network: file.Train.Network,
	}, func() error { return os.RemoveAll(dir) }, nil
}
