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

// agentWatch is how long an agent is watched: whole sampling periods.
const agentWatch = 30 * time.Second

// agentUse is what an agent uses.
type agentUse struct {
	Watched time.Duration
	Memory  string  // anonymous memory
	Core    float64 // share of one core
}

// agentConfig is the configuration of a controller and an agent, to be filled with the sampling period, the addresses of bus and probe
// server, and the agent's probes.
const agentConfig = `service: web
slo: {metric: mean, threshold: 75ms}
sampling: %v
policy: {name: static}
listen: off
bus: {listen: %q}
probe: {listen: %q}
agent: {instance: i1, interface: lo, capacity: {network: 1Gbps, disk: 1000}, probes: %s}
`

// agentCost runs bin/quell as a controller and as an agent with this sampling period and these probes (as in agent.probes), connected over
// loopback, and reads what the agent used. It needs Linux.
func agentCost(ctx context.Context, period time.Duration, probes string) (*agentUse, error) {
	dir, err := os.MkdirTemp("", "quell-agent-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	addrs, err := new(experiment.Ports).Free(2)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "quell.yaml")
	text := fmt.Sprintf(agentConfig, period, addrs[0], addrs[1], probes)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	var pids []int
	for _, what := range []string{"controller", "agent"} {
		cmd := exec.CommandContext(ctx, filepath.Join("bin", "quell"), what, "--config", config)
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		pids = append(pids, cmd.Process.Pid)
	}
	agent := pids[1]
	time.Sleep(3 * time.Second)
	before, err := ticks(agent)
	if err != nil {
		return nil, err
	}
	time.Sleep(agentWatch)
	after, err := ticks(agent)
	if err != nil {
		return nil, err
	}
	memory, err := anonymousMemory(agent)
	if err != nil {
		return nil, err
	}
	return &agentUse{Watched: agentWatch, Memory: memory, Core: float64(after-before) / perSecond / agentWatch.Seconds()}, nil
}

// perSecond is the number of clock ticks in a second, the same on every Linux that Go runs on.
const perSecond = 100

// ticks is the processor time that a process has used, with its children: those that run, and those that have ended.
func ticks(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return 0, errors.New("/proc/PID/stat is shorter than expected")
	}
	sum := 0
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	for _, child := range childrenOf(pid) {
		if used, err := ticks(child); err == nil { // one may have ended since
			sum += used
		}
	}
	return sum, nil
}

// childrenOf lists the processes that the first thread of a process has started and that still run.
func childrenOf(pid int) (pids []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid))
	for field := range strings.FieldsSeq(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
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
