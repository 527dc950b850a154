package kernel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// programGroup is the group of a host's programs. Its quota is the programs' strength, as a share of the host's cores.
const programGroup = "nb-program"

// neighbourProgram is how a program is prepared and started. Strength is from 0 to 1.
type neighbourProgram struct {
	needs   []string // programs
	data    string   // PostgreSQL's program that must be there; empty: none
	prepare func(ctx context.Context, dir string) error
	start   func(m *Machine, i *interferer, dir string, strength float64) error
}

var neighbourPrograms = map[Program]neighbourProgram{
	Compile: {needs: []string{"gcc"}, prepare: prepareCompile, start: (*Machine).startCompile},
	KeyValue: {needs: []string{"redis-server", "redis-benchmark"}, prepare: func(context.Context, string) error { return nil },
		start: (*Machine).startKeyValue},
	Pgbench: {data: "pgbench", prepare: prepareBench, start: (*Machine).startBench},
	Sort:    {needs: []string{"sort", "dd"}, prepare: prepareSort, start: (*Machine).startSort},
}

// CheckProgram returns, as a *quell.UserError, what a program of a neighbour needs and this machine lacks.
func CheckProgram(p Program) error {
	how, known := neighbourPrograms[p]
	if !known {
		return userErrorf("neighbours run no program %q", p)
	}
	if err := needPrograms(how.needs...); err != nil || how.data == "" {
		return err
	}
	_, err := findPostgres(how.data)
	return err
}

// programDir is the folder of a program on a host.
func (m *Machine) programDir(p Program) string {
	return filepath.Join(m.lab.options.Dir, m.ID+"-"+string(p))
}

// prepare makes the data of the lab's programs, so that they start at once.
func (m *Machine) prepare(ctx context.Context) error {
	for _, p := range m.lab.options.Programs {
		if err := CheckProgram(p); err != nil {
			return err
		}
		dir := m.programDir(p)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := neighbourPrograms[p].prepare(ctx, dir); err != nil {
			return fmt.Errorf("preparing %s on %s: %w", p, m.ID, err)
		}
	}
	return nil
}

// Run makes the neighbour run these programs at these strengths, from 0 to 1, and no other. The strength is the largest share of the host's
// processors that they get together; for KeyValue and Pgbench also the share of their 16 and 8 clients, and for Sort that of 32 sorts at
// once. A program must be one of Options.Programs. If a program has ended by itself since the last call, that is an error, once.
func (m *Machine) Run(strengths map[Program]float64) error {
	for p, strength := range strengths {
		if !slices.Contains(m.lab.options.Programs, p) {
			return userErrorf("host %s: the lab was made without the program %q", m.ID, p)
		}
		if !(strength >= 0 && strength <= 1) {
			return userErrorf("host %s: %s at a strength of %v: give 0 to 1", m.ID, p, strength)
		}
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var errs []error
	sum := 0.0
	for _, p := range Programs { // first, because ending the last program lifts the quota
		sum += strengths[p]
		if err := m.endUnless(p, strengths[p]); err != nil {
			errs = append(errs, fmt.Errorf("host %s: %s: %w", m.ID, p, err))
		}
	}
	if sum == 0 || len(errs) > 0 {
		return errors.Join(errs...)
	}
	if err := m.limit(programGroup, math.Min(1, sum)); err != nil {
		return err
	}
	for _, p := range Programs {
		if err := m.begin(p, strengths[p]); err != nil {
			errs = append(errs, fmt.Errorf("host %s: %s: %w", m.ID, p, err))
		}
	}
	return errors.Join(errs...)
}

// endUnless ends a program unless it runs at this strength. If it has ended by itself, that is an error.
func (m *Machine) endUnless(p Program, strength float64) error {
	now := m.running[p]
	if now == nil || now.share == strength && now.failed() == nil {
		return nil
	}
	delete(m.running, p)
	return errors.Join(now.failed(), m.stopProgram(now))
}

// begin starts a program, unless it runs already.
func (m *Machine) begin(p Program, strength float64) error {
	if strength == 0 || m.running[p] != nil {
		return nil
	}
	next := &interferer{share: strength}
	if err := neighbourPrograms[p].start(m, next, m.programDir(p), strength); err != nil {
		return errors.Join(err, m.stopProgram(next))
	}
	m.running[p] = next
	return nil
}

// stopProgram ends the processes of a program, and all that is left in the programs' group if no other program runs.
func (m *Machine) stopProgram(i *interferer) error {
	var errs []error
	for _, p := range i.programs {
		errs = append(errs, p.stop(syscall.SIGINT, 5*time.Second))
	}
	if len(m.running) == 0 {
		_, err := killIn(nil, m.lab.groups.foldersOf(filepath.Join(base(m.lab.options.Prefix), m.ID, programGroup)))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// programPlace is where the programs run.
func (m *Machine) programPlace() Place {
	p := m.nb
	p.group = m.ID + "/" + programGroup
	return p
}

// again is a shell script that repeats a command until it fails.
func again(command string) []string {
	return []string{"-c", "while " + command + "; do :; done; exit 1"}
}

// quoted quotes a path for the shell.
func quoted(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

func prepareCompile(_ context.Context, dir string) error {
	return os.WriteFile(filepath.Join(dir, "unit.c"), compiledFile(), 0o644)
}

func (m *Machine) startCompile(i *interferer, dir string, _ float64) error {
	for n := range max(1, int(math.Ceil(m.cores()))) {
		command := fmt.Sprintf("gcc -pipe -O2 -w -c %s -o %s", quoted(filepath.Join(dir, "unit.c")),
			quoted(filepath.Join(dir, fmt.Sprintf("unit%d.o", n))))
		if _, err := m.run(i, m.programPlace(), fmt.Sprintf("compile%d", n), "sh", again(command)...); err != nil {
			return err
		}
	}
	return nil
}

// sortedFile is the size of the file to sort; sort has a smaller buffer, and so needs its own temporary files. The file has few blocks, so
// that a sort soon goes from reading to writing and back. Larger blocks would need as much of the processors as of the disk.
const (
	sortedFile = 1 << 20
	sortBuffer = "256K"
	sortBlock  = "16k"
	mostSorts  = 32
)

func prepareSort(_ context.Context, dir string) error {
	path := filepath.Join(dir, "input")
	if info, err := os.Stat(path); err == nil && info.Size() == sortedFile {
		return nil
	}
	const line = 64
	content, state := make([]byte, sortedFile), uint64(1)
	for i := range content {
		if i%line == line-1 {
			content[i] = '\n'
			continue
		}
		state = state*6364136223846793005 + 1442695040888963407
		content[i] = 'a' + byte(state>>33)%26
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}

// startSort starts sorts that read the same file and have outputs of their own. They are one process group, so that they end at once. If
// one fails, all end. Every second one begins with writing: because the kernel limits reads and writes apart, sorts that begin together go
// on in step, and would all read or all write.
func (m *Machine) startSort(i *interferer, dir string, strength float64) error {
	input, output := quoted(filepath.Join(dir, "input")), quoted(filepath.Join(dir, "output"))
	written := fmt.Sprintf("[ $((n %% 2)) = 0 ] || dd if=%s of=%s$n oflag=direct bs=%s status=none", input, output, sortBlock)
	one := fmt.Sprintf("dd if=%s iflag=direct bs=%s status=none | sort --buffer-size=%s --parallel=1 --temporary-directory=%s | "+
		"dd of=%s$n oflag=direct iflag=fullblock bs=%s status=none", input, sortBlock, sortBuffer, quoted(dir), output, sortBlock)
	all := fmt.Sprintf("n=0; while [ $n -lt %d ]; do (%s; while %s; do :; done; kill $$) & n=$((n + 1)); done; wait; exit 1",
		atOnce(mostSorts, strength), written, one)
	_, err := m.run(i, m.programPlace(), "sort", "sh", "-c", all)
	return err
}

// mostClients is how many clients a server has at full strength.
const (
	keyValueClients = 16
	benchClients    = 8
	keyValuePort    = 6379
	valueBytes      = 16 << 10
)

// atOnce is how many of something a program has at a strength: at least one.
func atOnce(most int, strength float64) int { return max(1, int(math.Round(float64(most)*strength))) }

// startKeyValue starts Redis on the host, and its clients on the other side of the link.
func (m *Machine) startKeyValue(i *interferer, dir string, strength float64) error {
	address, port := m.nb.address.String(), strconv.Itoa(keyValuePort)
	server, err := m.run(i, m.programPlace(), "redis", "redis-server", "--bind", address, "--port", port, "--protected-mode", "no",
		"--save", "", "--appendonly", "no", "--dir", dir, "--daemonize", "no")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := server.until(ctx, func() bool { return listens(server.cmd.Process.Pid, keyValuePort) }); err != nil {
		return err
	}
	ask := []string{"-h", address, "-p", port, "-d", strconv.Itoa(valueBytes), "-q"}
	once, err := launch(m.sink, m.lab.options.Dir, m.ID+"-redis-set", syscall.SIGKILL, "redis-benchmark",
		append(ask, "-t", "set", "-n", "1", "-c", "1")...)
	if err != nil {
		return err
	}
	if !once.ended(patience) || !once.cmd.ProcessState.Success() {
		return errors.Join(errors.New("setting the value that clients get"), once.failed(), once.stop(syscall.SIGKILL, patience))
	}
	_, err = m.run(i, m.sink, "redis-clients", "redis-benchmark",
		append(ask, "-t", "get", "-n", "1000000", "-l", "-c", strconv.Itoa(atOnce(keyValueClients, strength)))...)
	return err
}

func prepareBench(ctx context.Context, dir string) error {
	return makeCluster(ctx, filepath.Join(dir, "data"), []byte(benchStatements))
}

// startBench starts a database and its clients in the same group.
func (m *Machine) startBench(i *interferer, dir string, strength float64) error {
	sockets, err := MakeRunDir(m.lab.options.Prefix, "bench")
	if err != nil {
		return err
	}
	if err := giveToNobody(sockets); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var s server
	c := cluster{place: m.programPlace(), dir: dir, data: filepath.Join(dir, "data"), sockets: sockets, direct: m.DiskIOPS > 0}
	if err := c.start(ctx, &s); err != nil {
		return err
	}
	i.programs = append(i.programs, s.run)
	path, err := findPostgres("pgbench")
	if err != nil {
		return err
	}
	cmd := exec.Command(path, "--no-vacuum", "--client", strconv.Itoa(atOnce(benchClients, strength)), "--jobs", "1", "--time", "1000000",
		"--host", sockets, "--username", "lab", "postgres")
	if err := asNobody(cmd); err != nil {
		return err
	}
	load, err := launchCommand(m.programPlace(), m.lab.options.Dir, m.ID+"-pgbench", syscall.SIGKILL, cmd)
	if err == nil {
		i.programs = append([]*process{load}, i.programs...) // it is stopped before its server
	}
	return err
}
