package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/quellhq/quell"
)

// Benchmark runs a program in the instance's place that takes as much of a resource as it gets, and returns its rate: rounds of stress-ng
// per second for cpu and memory, reads of 4 KiB per second past the cache for disk. What is missing to the rate without neighbours is what
// the neighbours use, as DIAL measures it (section III-D). length is at least a second, in whole seconds. There is no benchmark of the
// network, whose bytes are counted.
func (m *Machine) Benchmark(ctx context.Context, r quell.Resource, length time.Duration) (rate float64, err error) {
	dir := m.lab.options.Dir
	said := filepath.Join(dir, m.ID+"-benchmark.out")
	if err := os.Remove(said); err != nil && !os.IsNotExist(err) {
		return 0, err
	}
	seconds := strconv.Itoa(max(1, int(length.Seconds())))
	var program string
	var args []string
	read := readStress
	switch r {
	case quell.CPU, quell.Memory:
		program, args = "stress-ng", append(stressArgs(r, dir, m.cores()), "--timeout", seconds, "--metrics", "--yaml", said)
	case quell.Disk:
		const size = 16 << 20
		file := filepath.Join(dir, m.ID+"-benchmark.data")
		if err := fill(file, size); err != nil {
			return 0, fmt.Errorf("writing the benchmark's file: %w", err)
		}
		program, read = "fio", readFio
		args = []string{"--name=benchmark", "--filename=" + file, "--size=" + strconv.Itoa(size), "--rw=randread", "--bs=4k", "--direct=1",
			"--ioengine=psync", "--thread", "--numjobs=1", "--time_based", "--runtime=" + seconds, "--eta=never",
			"--output-format=json", "--output=" + said}
	default:
		return 0, userErrorf("there is no benchmark of the %s", r)
	}
	if err := m.finish(ctx, program, args); err != nil {
		return 0, err
	}
	data, err := os.ReadFile(said)
	if err == nil {
		rate, err = read(data)
	}
	if err != nil {
		return 0, fmt.Errorf("what %s measured: %w", program, err)
	}
	return rate, nil
}

// finish runs a program in the instance's place until it ends.
func (m *Machine) finish(ctx context.Context, program string, args []string) error {
	if err := needPrograms(program); err != nil {
		return err
	}
	place, err := m.lab.Place(m.ID, Instance)
	if err != nil {
		return err
	}
	p, err := launch(place, m.lab.options.Dir, m.ID+"-benchmark", syscall.SIGKILL, program, args...)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.stop(syscall.SIGKILL, 0))
	}
	if !p.cmd.ProcessState.Success() {
		return p.failed()
	}
	return nil
}

// readStress reads the rounds per second of stress-ng.
func readStress(data []byte) (float64, error) {
	var said struct {
		Metrics []struct {
			Rate float64 `yaml:"bogo-ops-per-second-real-time"`
		} `yaml:"metrics"`
	}
	if err := yaml.Unmarshal(data, &said); err != nil {
		return 0, err
	}
	if len(said.Metrics) != 1 {
		return 0, fmt.Errorf("%d programs: %w", len(said.Metrics), quell.ErrNoData)
	}
	return said.Metrics[0].Rate, nil
}

// readFio reads the reads per second of fio.
func readFio(data []byte) (float64, error) {
	var said struct {
		Jobs []struct {
			Read struct {
				Rate float64 `json:"iops"`
			} `json:"read"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(data, &said); err != nil {
		return 0, err
	}
	if len(said.Jobs) != 1 {
		return 0, fmt.Errorf("%d jobs: %w", len(said.Jobs), quell.ErrNoData)
	}
	return said.Jobs[0].Read.Rate, nil
}
