package local

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// diskProbe reads or writes a random block of its own file, past the page cache.
type diskProbe struct {
	thread thread
	file   int
	block  []byte // aligned, because direct operations need that
	writes bool
	rng    *mathrand.Rand
}

func openDisk(o *Options) (prober, error) {
	if err := hasRoom(o.Folder); err != nil {
		return nil, err
	}
	t, err := openThread()
	if err != nil {
		return nil, err
	}
	p := &diskProbe{thread: t, file: -1, writes: o.Writes, rng: mathrand.New(mathrand.NewPCG(o.Seed, fileBytes))}
	if err := p.prepare(o.Folder); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// hasRoom makes the folder, and returns an error if the disk cannot be probed there.
func hasRoom(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return noFile(folder, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(folder, &fs); err != nil {
		return noFile(folder, err)
	}
	return serves(folder, &fs)
}

// serves returns an error if the file system is in memory, read-only or nearly full.
func serves(folder string, fs *unix.Statfs_t) error {
	if fs.Flags&unix.ST_RDONLY != 0 {
		return noFile(folder, unix.EROFS)
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is in memory, not on a disk: %s", folder, instead)
	}
	if free := float64(fs.Bavail) * float64(fs.Bsize); free < spareBytes+fileBytes {
		return fmt.Errorf("the disk of %s is nearly full (%.0f MB are free, the probe leaves %.0f MB): free some space", folder,
			math.Floor(free/1e6), float64(spareBytes)/1e6)
	}
	return nil
}

// instead is the advice for a folder that cannot be used.
const instead = "set agent.probing.folder to a folder on the disk that the service uses"

// noFile returns the error for a folder in which no file can be made.
func noFile(folder string, err error) error {
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%s is read-only: %s, or take disk out of agent.probes", folder, instead)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("the disk of %s is full, or the quota used up: free some space", folder)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("the file system of %s has no direct reads and writes (O_DIRECT), so only its page cache could be measured: %s", folder,
			instead)
	}
	return fmt.Errorf("making the probe's file in %s: %w; %s", folder, err, instead)
}

// prepare makes the file and checks that reads of the file come from a disk.
func (p *diskProbe) prepare(folder string) error {
	if err := resolves(p.thread.now, shortOperation, "wall"); err != nil {
		return err
	}
	if err := p.create(folder); err != nil {
		return noFile(folder, err)
	}
	if err := p.fill(); err != nil {
		return noFile(folder, err)
	}
	return p.onDisk(folder)
}

// create opens a new file that nobody else can open, and removes its name: the file is gone when this process ends, in whatever way.
func (p *diskProbe) create(folder string) (err error) {
	path := filepath.Join(folder, "quell-probe-"+rand.Text())
	flags := unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_DIRECT
	if p.writes {
		flags |= unix.O_DSYNC
	}
	p.file, err = unix.Open(path, flags, 0o600)
	if gone := os.Remove(path); err == nil { // the name may exist even if O_DIRECT was refused
		err = gone
	}
	return err
}

// fill writes the whole file once, with bytes that a file system cannot compress.
func (p *diskProbe) fill() (err error) {
	const chunk = 64 * blockBytes
	memory, err := unix.Mmap(-1, 0, chunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	p.block = memory // probes use its first block
	for at := int64(0); at < fileBytes; at += chunk {
		_, _ = rand.Read(memory)
		if n, err := unix.Pwrite(p.file, memory, at); err != nil {
			return err
		} else if n < chunk {
			return unix.ENOSPC
		}
	}
	return unix.Fsync(p.file)
}

// onDisk reads some blocks and checks that the kernel counts them as read from a disk. If the kernel does not count, the file is assumed to
// be on a disk.
func (p *diskProbe) onDisk(folder string) error {
	const reads = 8
	before, counted := readBytes()
	for range reads {
		if _, err := p.operate(false); err != nil && !errors.Is(err, errHidden) {
			return fmt.Errorf("reading the probe's file in %s: %w", folder, err)
		}
	}
	if after, _ := readBytes(); counted && after-before < reads*blockBytes {
		return fmt.Errorf("reads of a file in %s are answered from memory, not from a disk that this machine sees: %s", folder, instead)
	}
	return nil
}

// readBytes returns how much this thread has read from disks, and whether the kernel counts that.
func readBytes() (bytes uint64, counted bool) {
	text, err := os.ReadFile("/proc/thread-self/io")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "read_bytes:"); ok {
			bytes, err = strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			return bytes, err == nil
		}
	}
	return 0, false
}

// probe returns the time of one operation, minus the time that the thread then waited for a processor.
func (p *diskProbe) probe(time.Duration) (sample, error) {
	s := sample{cost: 1}
	var err error
	if s.ms, err = p.operate(p.writes); err != nil && !errors.Is(err, errHidden) {
		err = &brokenError{fmt.Errorf("the probe's file on the disk: %w", err)}
	}
	return s, err
}

// operate reads or writes one block at a random position and returns the time in ms.
func (p *diskProbe) operate(write bool) (float64, error) {
	operation, at := unix.Pread, p.rng.Int64N(fileBytes/blockBytes)*blockBytes
	if write {
		operation = unix.Pwrite
	}
	waited, err := p.thread.waited()
	if err != nil {
		return 0, err
	}
	began := p.thread.now()
	n, err := operation(p.file, p.block[:blockBytes], at)
	took := p.thread.now() - began
	if err != nil {
		return 0, err
	}
	if n != blockBytes {
		return 0, fmt.Errorf("%d of %d bytes were read or written", n, blockBytes)
	}
	woken, err := p.thread.waited()
	if err != nil {
		return 0, err
	}
	if took -= woken - waited; took <= 0 {
		return 0, errHidden // the thread also waited just before or after the operation
	}
	return milliseconds(took), nil
}

// errHidden says that the time of an operation cannot be separated from the time that its thread waited for a processor.
var errHidden = errors.New("what the disk took cannot be told from the wait for a processor")

func (p *diskProbe) close() error {
	errs := []error{p.thread.close()}
	if p.file >= 0 {
		errs = append(errs, unix.Close(p.file))
	}
	if p.block != nil {
		errs = append(errs, unix.Munmap(p.block))
	}
	return errors.Join(errs...)
}
