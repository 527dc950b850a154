package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/lab/experiment"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/lab/testbed/kernel"
)

// ownTraining makes the lab of a training with testbed kernel, and runs the same command line inside it.
func ownTraining(ctx context.Context, file *config.File, prefix string, errs io.Writer) error {
	if err := kernel.Check("nginx", "iperf3"); err != nil {
		return err
	}
	var hosts []kernel.Host
	for _, id := range trainingIDs(file) {
		hosts = append(hosts, kernel.Host{ID: id, Network: file.Train.Network})
	}
	return ownLab(ctx, kernel.Options{Prefix: prefix, Dir: filepath.Join(kernel.RunDir(prefix), "lab"), Hosts: hosts}, errs)
}

func trainingIDs(file *config.File) []string {
	var ids []string
	for i := range file.Train.Hosts {
		ids = append(ids, fmt.Sprintf("h%d", i+1))
	}
	return ids
}

// trainingHosts are the lab's machines as the player uses them for training. Their files are removed with the lab.
func trainingHosts(file *config.File, prefix string, machines experiment.Machines) (*experiment.KernelHosts, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	dir, err := kernel.MakeRunDir(prefix, "train")
	if err != nil {
		return nil, err
	}
	return &experiment.KernelHosts{
		Program: program, Dir: dir, Prefix: prefix, Hosts: trainingIDs(file), Machines: machines,
		Host: scenario.Host{Network: file.Train.Network},
	}, nil
}
