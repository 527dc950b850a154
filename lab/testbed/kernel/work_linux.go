package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the processor time that the calling thread has used.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}

// disk is a file whose blocks are read past the cache, so that each block is a disk operation.
type disk struct {
	file   *os.File
	blocks int64
	next   atomic.Int64
}

const diskBlock = 4096

func openDisk(path string) (*disk, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		return nil, userErrorf("%s lies on a file system that cannot read past its cache: choose a folder on a disk with ext4 or xfs (%w)",
			filepath.Dir(path), unix.EINVAL)
	}
	if err != nil {
		return nil, userErrorf("opening the file that disk operations read: %w", err)
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() < diskBlock) {
		err = userErrorf("%s: disk operations read a plain file of at least %d bytes", path, diskBlock)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &disk{file: file, blocks: info.Size() / diskBlock}, nil
}

// read reads this many blocks, one after the other, each far from the previous one.
func (d *disk) read(ctx context.Context, operations int64) error {
	// aligned, which the kernel requires
	block, err := unix.Mmap(-1, 0, diskBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("making room for a block: %w", err)
	}
	defer func() { _ = unix.Munmap(block) }()
	const stride = 2_654_435_761 // a prime: all blocks are read in turn, in an order that read-ahead does not predict
	for range operations {
		if _, err := d.file.ReadAt(block, d.next.Add(1)%d.blocks*stride%d.blocks*diskBlock); err != nil {
			return fmt.Errorf("reading from the disk: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
