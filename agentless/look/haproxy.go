package look

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quellhq/quell/agentless"
)

// Server is what HAProxy says of a server.
type Server struct {
	Backend, Name, Address string
	Weight                 float64 // in its configuration
	Status                 string
	Requests               int64   // since the start
	LatencyMS              float64 // mean of the last 1024 requests; 0: none
	Backup                 bool
}

const answerLimit = 64 << 20

// HAProxy is what one process says.
type HAProxy struct {
	Level   string // of the socket: admin, operator or user
	Servers []Server
	At      time.Time
}

// AskHAProxy reads the servers of every backend. It needs no more than the level operator, and changes nothing.
func AskHAProxy(ctx context.Context, socket string) (h HAProxy, err error) {
	level, err := exchange(ctx, socket, "show cli level")
	if err != nil {
		return h, err
	}
	h.Level, h.At = strings.TrimSpace(level), time.Now()
	text, err := exchange(ctx, socket, "show stat -1 4 -1") // servers only
	if err != nil {
		return h, err
	}
	h.Servers, err = parseStat(text)
	if err != nil {
		return h, fmt.Errorf("%s: %w", socket, err)
	}
	return h, nil
}

// exchange sends one command to the runtime API.
func exchange(ctx context.Context, socket, command string) (string, error) {
	network := "tcp"
	if strings.Contains(socket, "/") {
		network = "unix"
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, socket)
	if err != nil {
		return "", unanswered(socket, err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // a deadline cannot be wrong here
	}
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return "", unanswered(socket, err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, answerLimit))
	if err != nil {
		return "", unanswered(socket, err)
	}
	if len(bytes.TrimSpace(answer)) == 0 || bytes.HasPrefix(answer, []byte("Unknown command")) {
		return "", fmt.Errorf("HAProxy's socket %s does not answer %q: is it a `stats socket` of level operator or admin?", socket, command)
	}
	return string(answer), nil
}

// unanswered says what to do about a socket that cannot be asked.
func unanswered(socket string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint = ": name the path of a `stats socket` line in HAProxy's configuration, or add one: stats socket PATH level admin"
	case errors.Is(err, fs.ErrPermission):
		hint = ": run this as root, or as a user of the socket's group"
	case errors.Is(err, syscall.ECONNREFUSED):
		hint = ": is HAProxy running?"
	case errors.Is(err, os.ErrDeadlineExceeded):
		hint = ": name a `stats socket`; the socket of the master process (-S) does not answer this"
	}
	return fmt.Errorf("HAProxy's socket %s: %w%s", socket, err, hint)
}

// parseStat reads the servers in an answer to `show stat`. Columns are found by their names.
func parseStat(text string) (servers []Server, err error) {
	in := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "# ")))
	in.FieldsPerRecord, in.LazyQuotes = -1, true
	rows, err := in.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("`show stat`: %w", err)
	}
	if len(rows) == 0 {
		return nil, errors.New("`show stat` was answered with nothing")
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	for _, name := range []string{"pxname", "svname", "stot", "status", "type"} {
		if _, ok := column[name]; !ok {
			return nil, fmt.Errorf("`show stat` has no column %s: is this HAProxy?", name)
		}
	}
	for _, row := range rows[1:] {
		at := func(name string) string {
			if i, ok := column[name]; ok && i < len(row) {
				return row[i]
			}
			return ""
		}
		number := func(name string) float64 {
			v, err := strconv.ParseFloat(at(name), 64)
			if err != nil {
				return 0
			}
			return v
		}
		if at("type") != "2" {
			continue
		}
		servers = append(servers, Server{Backend: at("pxname"), Name: at("svname"), Address: at("addr"), Weight: number("weight"),
			Status: at("status"), Requests: int64(number("stot")), LatencyMS: number("ttime"), Backup: at("bck") == "1"})
	}
	return servers, nil
}

// Backend chooses a backend's servers. Without a name there must be only one backend with servers.
func (h *HAProxy) Backend(name string) (servers []Server, err error) {
	names := []string{}
	for _, s := range h.Servers {
		if len(names) == 0 || names[len(names)-1] != s.Backend {
			names = append(names, s.Backend)
		}
		if s.Backend == name {
			servers = append(servers, s)
		}
	}
	switch {
	case len(names) == 0:
		return nil, errors.New("HAProxy has no servers")
	case name != "" && len(servers) == 0:
		return nil, fmt.Errorf("HAProxy has no backend %s with servers; it has %s", name, strings.Join(names, ", "))
	case name == "" && len(names) == 1:
		return h.Servers, nil
	case len(servers) == 0:
		return nil, fmt.Errorf("name a backend with --backend: HAProxy has %s", strings.Join(names, ", "))
	}
	return servers, nil
}

// Count adds to samples what HAProxy counted of the servers between two answers.
func Count(samples []agentless.Sample, before, after []Server, seconds float64) {
	old, now := map[string]Server{}, map[string]Server{}
	for _, s := range before {
		old[s.Name] = s
	}
	for _, s := range after {
		now[s.Name] = s
	}
	for i := range samples {
		a, known := old[samples[i].ID]
		b, there := now[samples[i].ID]
		if !known || !there || b.Requests < a.Requests || !(seconds > 0) { // it was restarted
			continue
		}
		rate := float64(b.Requests-a.Requests) / seconds
		samples[i].Rate = &rate
		if b.LatencyMS > 0 && rate > 0 {
			samples[i].LatencyMS = new(b.LatencyMS)
		}
	}
}
