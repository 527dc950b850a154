package interfere

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/tick"
)

const (
	diskFile    = 16 << 20 // bytes of the file
	diskBlock   = 4096     // bytes of one operation
	diskThreads = 8        // operations that may be open at once
	diskSpare   = 256 << 20
)

// reader reads random blocks of a file of its own, past the cache, at random moments.
type reader struct {
	file       int
	operations float64 // per second, of the whole disk
	rate       float64 // of each thread, per second
	done       atomic.Int64
}

func openDisk(o Options) (worker, error) {
	if err := os.MkdirAll(o.Folder, 0o700); err != nil {
		return nil, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(o.Folder, &fs); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Folder, err)
	}
	switch {
	case fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC:
		return nil, fmt.Errorf("%s is in memory, not on a disk: set agent.probing.folder to a folder on the disk that the service uses", o.Folder)
	case float64(fs.Bavail)*float64(fs.Bsize) < diskSpare:
		return nil, fmt.Errorf("the disk of %s is nearly full: free at least %d MiB", o.Folder, diskSpare>>20)
	}
	r := &reader{operations: o.Operations, rate: o.Use * o.Operations / diskThreads}
	if err := r.create(o.Folder); err != nil {
		return nil, fmt.Errorf("making the file to read in %s: %w", o.Folder, err)
	}
	return r, nil
}

// create makes the file and removes its name, so that nothing is left when this process ends, in whatever way.
func (r *reader) create(folder string) (err error) {
	path := filepath.Join(folder, "quell-interferer-"+crand.Text())
	if r.file, err = unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_DIRECT, 0o600); err != nil {
		return errors.Join(err, atomicfile.Remove(path)) // the name may exist even if O_DIRECT was refused
	}
	if err := errors.Join(os.Remove(path), r.fill()); err != nil {
		return errors.Join(err, r.close())
	}
	return nil
}

func (r *reader) fill() error {
	const chunk = 1 << 20
	memory, err := aligned(chunk)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(memory) }()
	rand.NewChaCha8([32]byte{}).Read(memory)
	for at := int64(0); at < diskFile; at += chunk {
		if _, err := unix.Pwrite(r.file, memory, at); err != nil {
			return err
		}
	}
	return nil
}

// aligned returns memory as direct operations need it.
func aligned(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

func (r *reader) threads() int { return diskThreads }

// work reads one block after the other. Operations are due at the moments of a Poisson process, also while the disk is slow.
func (r *reader) work(ctx context.Context, thread int, seed uint64) error {
	block, err := aligned(diskBlock)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(block) }()
	rng := rand.New(rand.NewPCG(seed, uint64(thread)))
	for due := time.Now(); ; {
		due = due.Add(time.Duration(rng.ExpFloat64() / r.rate * float64(time.Second)))
		if late := time.Since(due); late > time.Second { // it asks for more than the disk has, and must not ask for ever more
			due = due.Add(late)
		}
		if !tick.SleepUntil(ctx, due) {
			return nil
		}
		if _, err := unix.Pread(r.file, block, rng.Int64N(diskFile/diskBlock)*diskBlock); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("reading from the disk: %w", err)
		}
		r.done.Add(1)
	}
}

func (r *reader) used() (float64, error) { return float64(r.done.Load()) / r.operations, nil }

func (r *reader) close() error { return unix.Close(r.file) }
