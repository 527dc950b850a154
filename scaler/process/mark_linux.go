package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// findMarked lists the processes with the mark of a state folder that this user may inspect.
func findMarked(dir string) ([]marked, error) {
	folder, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("looking for instances that are not listed: %w", err)
	}
	var found []marked
	for _, p := range procs {
		environ, err := p.Environ()
		if err != nil {
			continue // it has ended, or belongs to another user
		}
		r, ok := readMark(environ, folder)
		if !ok {
			continue
		}
		identity, dead, err := identify(p.PID)
		stat, statErr := p.Stat()
		if err != nil || statErr != nil || dead {
			continue
		}
		r.PID, r.ProcessStart = p.PID, identity
		found = append(found, marked{record: r, parent: stat.PPID, group: stat.PGRP, listens: listensOn(p, r.Port)})
	}
	return found, nil
}

// listensOn returns whether a process listens on a port in its network namespace.
func listensOn(p procfs.Proc, port int) bool {
	var sockets []string
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.PID, table)) // there may be no IPv6
		sockets = append(sockets, listening(string(text), port)...)
	}
	targets, err := p.FileDescriptorTargets()
	return err == nil && slices.ContainsFunc(targets, func(t string) bool { return slices.Contains(sockets, strings.TrimSpace(t)) })
}

// listening parses /proc/net/tcp, and returns the sockets that listen on a port in the form used in /proc/PID/fd.
func listening(table string, port int) (sockets []string) {
	const state = "0A" // TCP_LISTEN, from include/net/tcp_states.h
	for line := range strings.SplitSeq(table, "\n") {
		if f := strings.Fields(line); len(f) > 9 && f[3] == state && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			sockets = append(sockets, "socket:["+f[9]+"]")
		}
	}
	return sockets
}
