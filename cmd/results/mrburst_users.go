package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quellhq/quell/lab/testbed/kernel"
)

// burstServer is a server that users go to.
type burstServer struct {
	service burstService
	address string // host:port
	content string // folder of its files
	users   atomic.Int64
}

// burstSession is a user's connection with a server.
type burstSession interface {
	// get downloads a file.
	get(file string) error
	close()
}

// burstUsers are users who download files from a server, each a file of his own, one after the other. A file's cached pages are dropped
// before it is asked for, so that the disk is read each time. A user who leaves, or goes to another server, finishes his download first.
type burstUsers struct {
	place  kernel.Place
	server atomic.Pointer[burstServer]
	report func(took time.Duration, err error) // called concurrently

	ctx  context.Context // its end breaks off all downloads
	all  sync.WaitGroup
	stay []context.CancelFunc // by user
}

// burstFile is the name of a user's file.
func burstFile(user int) string { return fmt.Sprintf("file%d", user) }

// burstPatience is how long a user waits for a download.
const burstPatience = time.Minute

// set changes the number of users. It must not be called concurrently.
func (u *burstUsers) set(n int) {
	for len(u.stay) > n {
		u.stay[len(u.stay)-1]()
		u.stay = u.stay[:len(u.stay)-1]
	}
	for len(u.stay) < n {
		user := len(u.stay)
		ctx, leave := context.WithCancel(u.ctx)
		u.stay = append(u.stay, leave)
		u.all.Go(func() { u.visit(ctx, burstFile(user)) })
	}
}

// visit downloads a file again and again until ctx ends.
func (u *burstUsers) visit(ctx context.Context, file string) {
	for ctx.Err() == nil {
		server := u.server.Load()
		if err := u.use(ctx, server, file); err != nil && u.ctx.Err() == nil {
			u.report(0, err)
			_ = wait(ctx, 200*time.Millisecond)
		}
	}
}

// use logs in and downloads until ctx ends, or there is another server.
func (u *burstUsers) use(ctx context.Context, server *burstServer, file string) error {
	server.users.Add(1)
	defer server.users.Add(-1)
	s, err := server.service.login(u, server.address)
	if err != nil {
		return err
	}
	defer s.close()
	for ctx.Err() == nil && u.server.Load() == server {
		if err := dropCache(filepath.Join(server.content, file)); err != nil {
			return err
		}
		began := time.Now()
		if err := s.get(file); err != nil {
			return err
		}
		u.report(time.Since(began), nil)
	}
	return nil
}

// dial connects from the users' place.
func (u *burstUsers) dial(address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(u.ctx, burstPatience)
	defer cancel()
	return u.place.Dial(ctx, "tcp4", address)
}

// dropCache drops a file's pages from the kernel's cache.
func dropCache(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
}
