package haproxy

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Bits of srv_admin_state and srv_agent_state, from HAProxy's include/haproxy/server-t.h and check-t.h.
const (
	forcedMaint    = 0x01
	inheritedMaint = 0x02
	noAddress      = 0x20 | 0x40 // its name does not resolve, or a name given at run time is not valid
	anyMaint       = forcedMaint | inheritedMaint | noAddress
	forcedDrain    = 0x08
	inheritedDrain = 0x10
	anyDrain       = forcedDrain | inheritedDrain
	agentIsThere   = 0x02
	stopping       = 3 // srv_op_state: it gets no new requests
	maxWeight      = 256
	stateColumns   = "be_id srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_agent_state srv_fqdn srv_port"
	statRequired   = "svname scur stot"
	stateVersion1  = "1"
)

// server is a server of the backend in one HAProxy.
type server struct {
	name    string
	number  int64  // HAProxy's id, unique in the backend
	address string // ip:port; empty while the server has no address
	fqdn    string // the host name with which it was declared; empty if it was declared with an address
	port    string
	weight  int
	given   int // the weight in HAProxy's configuration
	up      bool
	soft    bool // it gets no new requests because it, or the server that it tracks, answers health checks with 404
	admin   int
	agent   bool   // an agent-check is configured
	backup  bool   // it gets requests only while no other server can
	tls     bool   // HAProxy speaks TLS to it
	tracks  string // backend/server whose state it has; empty: it has a state of its own
	status  string // as `show stat` shows it

	sessions  int64 // requests that are open now
	total     int64 // since the start
	responses int64 // since the start, of any status
	failures  int64 // since the start: 5xx, no connection, broken responses
	reused    int64 // since the start: requests on kept connections
	moved     int64 // since the start: attempts to connect that failed and were repeated, here or at another server

	unanswered int64 // since the start: requests that ended without an answer
	totalMS    int64 // mean of the last 1024 requests

	check string // the last health check's result in HAProxy's words; empty if there is none
}

func (s *server) inMaint() bool    { return s.admin&anyMaint != 0 }
func (s *server) isDraining() bool { return s.admin&anyDrain != 0 }

// parseState reads `show servers state BACKEND`. The number of columns differs between versions, their names do not. id
// is the backend's number, empty if it has no servers.
func parseState(text string) (servers []server, id string, err error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) < 2 || strings.TrimSpace(lines[0]) != stateVersion1 || !strings.HasPrefix(lines[1], "# ") {
		return nil, "", fmt.Errorf("`show servers state` was answered with %q", shorten(text))
	}
	columns, err := columnsOf(strings.Fields(lines[1][2:]), stateColumns)
	if err != nil {
		return nil, "", fmt.Errorf("`show servers state`: %w", err)
	}
	for _, line := range lines[2:] {
		if strings.TrimSpace(line) == "" {
			continue
		}
		r := row{columns, strings.Fields(line), nil}
		s, err := stateOf(&r)
		if err != nil {
			return nil, "", fmt.Errorf("`show servers state`: %w in %q", err, shorten(line))
		}
		servers, id = append(servers, s), strconv.FormatInt(r.number("be_id"), 10)
	}
	return servers, id, nil
}

func stateOf(r *row) (server, error) {
	s := server{
		name: r.text("srv_name"), fqdn: absent(r.text("srv_fqdn")), port: r.text("srv_port"),
		up: r.number("srv_op_state") != 0, soft: r.number("srv_op_state") == stopping, admin: int(r.number("srv_admin_state")),
		tls:    r.optional("srv_use_ssl") == 1,
		number: r.number("srv_id"), weight: int(r.number("srv_uweight")), given: int(r.number("srv_iweight")),
		agent: r.number("srv_agent_state")&agentIsThere != 0,
	}
	if ip := absent(r.text("srv_addr")); ip != "" {
		s.address = net.JoinHostPort(ip, s.port)
	}
	if s.name == "" || s.weight < 0 || s.weight > maxWeight {
		return s, errors.Join(r.err, errors.New("a server without name, or with an impossible weight"))
	}
	return s, r.err
}

// absent turns HAProxy's "-" into "".
func absent(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// scheduling is the backend's mode and algorithm, as its line of `show stat` reports them; empty if the version does not report them.
type scheduling struct{ mode, algorithm string }

// parseStat reads `show stat` of one backend and its servers, and adds the counters to these servers. Counters that HAProxy's version does
// not report stay 0.
func parseStat(text string, servers []server) (how scheduling, err error) {
	in := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "# ")))
	in.FieldsPerRecord, in.LazyQuotes = -1, true
	records, err := in.ReadAll()
	if err != nil || len(records) == 0 {
		return how, fmt.Errorf("`show stat` was answered with %q", shorten(text))
	}
	columns, err := columnsOf(records[0], statRequired)
	if err != nil {
		return how, fmt.Errorf("`show stat`: %w", err)
	}
	byName := make(map[string]*server, len(servers))
	for i := range servers {
		byName[servers[i].name] = &servers[i]
	}
	for _, fields := range records[1:] {
		r := row{columns, fields, nil}
		if r.text("svname") == "BACKEND" && r.text("type") == "1" {
			how = scheduling{r.text("mode"), r.text("algo")}
			continue
		}
		s := byName[r.text("svname")]
		if s == nil {
			continue // the server was added between the two queries
		}
		s.sessions, s.total = r.number("scur"), r.number("stot")
		for _, class := range []string{"hrsp_1xx", "hrsp_2xx", "hrsp_3xx", "hrsp_4xx", "hrsp_5xx", "hrsp_other"} {
			s.responses += r.optional(class)
		}
		s.failures = r.optional("hrsp_5xx") + r.optional("econ") + r.optional("eresp")
		s.moved, s.unanswered = r.optional("wretr")+r.optional("wredis"), r.optional("econ")+r.optional("eresp")
		s.totalMS, s.reused = r.optional("ttime"), r.optional("reuse")
		s.check, s.backup = checkOf(&r), r.text("bck") == "1"
		s.tracks, s.status = r.text("tracked"), r.text("status")
		if r.err != nil {
			return how, fmt.Errorf("`show stat`: %w in the line of %q", r.err, shorten(s.name))
		}
	}
	return how, nil
}

// checkOf returns the result of a server's last health check: status, code and HAProxy's text.
func checkOf(r *row) string {
	status := strings.TrimPrefix(r.text("check_status"), "* ") // a star means that another check is running
	if status == "" {
		return ""
	}
	if code := r.text("check_code"); code != "" && code != "0" {
		status += "/" + code
	}
	text := "HAProxy's check: " + status
	for _, words := range []string{r.text("check_desc"), r.text("last_chk")} {
		if words != "" && !strings.Contains(text, words) {
			text += ", " + words
		}
	}
	text = shorten(text)
	if code := r.text("check_code"); code == "400" || code == "421" {
		text += "; if the server answers to another name only, add `http-check send hdr Host NAME` to the backend"
	}
	return text
}

// info is the part of `show info` that is used.
type info struct {
	pid      int64
	uptime   int64  // s
	requests int64  // requests and connections that it has counted; 0 if the version does not report them
	start    string // start time; empty if the version does not report it
	stopping bool   // it was replaced by a reload: it finishes its requests and accepts no more
	version  string
}

// process returns a text that identifies the process among all that have used the same socket.
func (i info) process() string { return strconv.FormatInt(i.pid, 10) + "/" + i.start }

func parseInfo(text string) (i info, err error) {
	values := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			values[name] = strings.TrimSpace(value)
		}
	}
	i.start = values["Start_time_sec"]
	i.version, i.stopping = values["Version"], values["Stopping"] != "" && values["Stopping"] != "0"
	i.uptime, _ = strconv.ParseInt(values["Uptime_sec"], 10, 64) // needed only for restarts that keep the pid
	for _, total := range []string{"CumReq", "CumConns"} {
		n, _ := strconv.ParseInt(values[total], 10, 64) // needed only for reloads that keep counters
		i.requests = max(i.requests, n)
	}
	if i.pid, err = strconv.ParseInt(values["Pid"], 10, 64); err != nil {
		return i, fmt.Errorf("`show info` was answered with %q", shorten(text))
	}
	return i, nil
}

// columnsOf returns the position of each column.
func columnsOf(names []string, required string) (map[string]int, error) {
	columns := make(map[string]int, len(names))
	for i, name := range names {
		columns[name] = i
	}
	for name := range strings.FieldsSeq(required) {
		if _, ok := columns[name]; !ok {
			return nil, fmt.Errorf("there is no column %s: HAProxy 2.4 or newer is needed", name)
		}
	}
	return columns, nil
}

// row reads single fields of a line and keeps the first error.
type row struct {
	columns map[string]int
	fields  []string
	err     error
}

func (r *row) text(name string) string {
	i, ok := r.columns[name]
	if !ok || i >= len(r.fields) {
		return ""
	}
	return r.fields[i]
}

func (r *row) number(name string) int64 {
	n, err := strconv.ParseInt(r.text(name), 10, 64)
	if (err != nil || n < 0) && r.err == nil {
		r.err = fmt.Errorf("%s is %q", name, shorten(r.text(name)))
	}
	return max(0, n)
}

func (r *row) optional(name string) int64 {
	if r.text(name) == "" {
		return 0
	}
	return r.number(name)
}

// shorten limits the length of text that is repeated in a message.
func shorten(s string) string {
	if s = strings.TrimSpace(s); len(s) > 200 {
		return strings.ToValidUTF8(s[:197], "") + "..."
	}
	return s
}
