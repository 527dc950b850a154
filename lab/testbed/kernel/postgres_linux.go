package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// PostgreSQL refuses to run as root. So it runs as nobody, and so do Apache and PHP. They may read every folder, because a lab's folder may
// be one that only root can enter, and Apache may open port 80.
const unprivileged = "nobody"

var kept = []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_NET_BIND_SERVICE}

// asNobody makes a program run as nobody, with IPC objects of its own, so that a killed database leaves no shared memory.
func asNobody(cmd *exec.Cmd) error {
	id, err := nobody()
	if err != nil {
		return err
	}
	cmd.Dir = "/" // it gets the right to enter other folders only when it has begun
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &id, AmbientCaps: kept, Cloneflags: unix.CLONE_NEWIPC}
	return nil
}

func nobody() (id syscall.Credential, err error) {
	u, err := user.Lookup(unprivileged)
	if err != nil {
		return id, userErrorf("the lab runs PostgreSQL as the user %s: %w", unprivileged, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return id, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// giveToNobody makes nobody the owner of a folder and of all in it.
func giveToNobody(dir string) error {
	id, err := nobody()
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(id.Uid), int(id.Gid))
	})
}

// findPostgres returns the path of a program of PostgreSQL. Debian keeps the programs of each version in a folder of their own, which is
// not in the search path; the newest is used.
func findPostgres(program string) (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	slices.SortFunc(found, func(a, b string) int { return postgresVersion(a) - postgresVersion(b) })
	if len(found) > 0 {
		return found[len(found)-1], nil
	}
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return "", userErrorf("the lab needs PostgreSQL's program %s, which is not installed; on Debian: apt-get install postgresql", program)
}

func postgresVersion(path string) int {
	version, _, _ := strings.Cut(strings.TrimPrefix(path, "/usr/lib/postgresql/"), "/")
	n, _ := strconv.Atoi(version)
	return n
}

// makeCluster makes the data of a database server, with what the statements make. A folder that is there already is kept. Statements end
// with a semicolon and an empty line.
func makeCluster(ctx context.Context, dir string, statements []byte) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	unfinished := dir + ".new" // of an interrupted call
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.MkdirAll(unfinished, 0o700); err != nil {
		return err
	}
	if err := giveToNobody(unfinished); err != nil {
		return err
	}
	err := runPostgres(ctx, nil, "initdb", "-D", unfinished, "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8",
		"--username=lab", "--wal-segsize=1", "--no-instructions")
	if err == nil && len(statements) > 0 {
		err = runPostgres(ctx, statements, "postgres", "--single", "-j", "-D", unfinished, "-c", "fsync=off",
			"-c", "exit_on_error=on", "postgres")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("making a database: %w", err), os.RemoveAll(unfinished))
	}
	return os.Rename(unfinished, dir)
}

// runPostgres runs a program of PostgreSQL to its end.
func runPostgres(ctx context.Context, input []byte, program string, args ...string) error {
	path, err := findPostgres(program)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	if err := asNobody(cmd); err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, lastOf(said.Bytes()))
	}
	return nil
}

// lastOf is the end of a program's output.
func lastOf(said []byte) string {
	const most = 500
	return strings.TrimSpace(string(said[max(0, len(said)-most):]))
}

// cluster is a database server in a place. Clients connect to it through a Unix socket.
type cluster struct {
	place   Place
	dir     string // for the log
	data    string // is written to; made by copyCluster
	sockets string // folder of the Unix socket
	direct  bool   // writes of commits go past the cache, so that each is a disk operation
}

// copyCluster copies the data of a server that does not run.
func copyCluster(to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("copying a database: %w", err)
	}
	err := filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.Chmod(path, 0o700) // PostgreSQL accepts no folder that others may read
		}
		return os.Chmod(path, 0o600)
	})
	return errors.Join(err, giveToNobody(to))
}

// start starts the server and returns when it accepts connections.
func (c cluster) start(ctx context.Context, s *server) error {
	path, err := findPostgres("postgres")
	if err != nil {
		return err
	}
	s.finish, s.force = syscall.SIGINT, syscall.SIGQUIT // a smart shutdown would wait for idle connections
	return s.startUntil(ctx, func() (*process, error) {
		cmd := exec.Command(path, c.arguments()...)
		if err := asNobody(cmd); err != nil {
			return nil, err
		}
		return launchCommand(c.place, c.dir, "postgres", syscall.SIGQUIT, cmd)
	}, func(*process) bool {
		state, err := os.ReadFile(filepath.Join(c.data, "postmaster.pid"))
		return err == nil && bytes.Contains(state, []byte("\nready"))
	})
}

// arguments set every size, so that the server is the same on every machine, and switch off what works at moments of its own.
func (c cluster) arguments() []string {
	method := "fdatasync"
	if c.direct {
		method = "open_datasync"
	}
	args := []string{"-D", c.data}
	for _, setting := range []string{
		"listen_addresses=", "unix_socket_directories=" + c.sockets, "max_connections=40", "shared_buffers=16MB",
		"shared_memory_type=mmap", "dynamic_shared_memory_type=mmap", "jit=off", "max_parallel_workers_per_gather=0",
		"wal_level=minimal", "max_wal_senders=0", "wal_sync_method=" + method, "full_page_writes=off", "wal_writer_delay=10s",
		"min_wal_size=64MB", "max_wal_size=256MB", "checkpoint_timeout=1h", "autovacuum=off", "track_counts=off",
	} {
		args = append(args, "-c", setting)
	}
	return args
}
