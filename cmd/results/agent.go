package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell/lab/experiment"
)

// agentWatch is how long an agent is watched at one observation a second.
const agentWatch = 30 * time.Second

// agentCost runs a controller and an agent of bin/quell beside it, on loopback, and reads what the agent used. Linux.
func agentCost(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "quell-agent-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	addrs, err := new(experiment.Ports).Free(2)
	if err != nil {
		return "", err
	}
	config := filepath.Join(dir, "quell.yaml")
	text := fmt.Sprintf("service: web\nslo: {metric: mean, threshold: 75ms}\nsampling: 1s\npolicy: {name: static}\nlisten: off\nbus: {listen: %q}\nprobe: {listen: %q}\nagent: {instance: i1, interface: lo, capacity: {network: 1Gbps}}\n", addrs[0], addrs[1])
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return "", err
	}
	var pids []int
	for _, what := range []string{"controller", "agent"} {
		cmd := exec.CommandContext(ctx, filepath.Join("bin", "quell"), what, "--config", config)
		if err := cmd.Start(); err != nil {
			return "", err
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		pids = append(pids, cmd.Process.Pid)
	}
	agent := pids[1]
	time.Sleep(3 * time.Second)
	before, err := ticks(agent)
	if err != nil {
		return "", err
	}
	time.Sleep(agentWatch)
	after, err := ticks(agent)
	if err != nil {
		return "", err
	}
	anonymous, err := anonymousMemory(agent)
	const perSecond = 100 // clock ticks, on every Linux that Go runs on
	share := float64(after-before) / perSecond / agentWatch.Seconds()
	return fmt.Sprintf("Agent at one observation a second, watched for %s: %s of anonymous memory, %.2f%% of a core.", agentWatch, anonymous, share*100), err
}

// ticks is the processor time that a process has used.
func ticks(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, errors.New("/proc/PID/stat is shorter than expected")
	}
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return user + system, err
}

func anonymousMemory(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", errors.New("the kernel does not tell anonymous memory")
}
