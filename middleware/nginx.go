package middleware

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Nginx is nginx. After HUP it starts new workers, and the old ones finish their requests.
var Nginx = kindOf(&server{
	name: "nginx", known: []string{"worker_processes", "worker_connections"}, programs: []string{"nginx"},
	signal: syscall.SIGHUP, check: []string{"nginx", "-t"},
	line: func(name string) string {
		return `(?m)^((?:[^#\r\n]*[ \t;{}])?` + name + `[ \t]+)([^ \t\r\n;]+)([ \t]*;)`
	},
	workers: nginxWorkers, counts: "worker_processes",
}, "worker_processes and worker_connections")

// nginxWorkers lists the workers of an nginx that take new requests. Workers that only finish old requests say so in their
// command line.
func nginxWorkers(pid int) (workers []string) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", strconv.Itoa(pid), "children"))
	if err != nil {
		return nil
	}
	for child := range strings.FieldsSeq(string(data)) {
		title, err := os.ReadFile(filepath.Join("/proc", child, "cmdline"))
		if err == nil && strings.HasPrefix(string(title), "nginx: worker process") && !strings.Contains(string(title), "shutting down") {
			workers = append(workers, child)
		}
	}
	return workers
}
