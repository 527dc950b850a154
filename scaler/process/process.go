// Package process is the scaler whose instances are processes on this machine, for the demo, for labs and for
// services that run several workers on one machine.
//
//	Start --> starting --answers--> ready --Stop--> draining --exits--> forgotten
//	             |                    |                                    ^
//	             +-- not in time,     +-- exits by itself --> failed --Stop+
//	                 exits by itself ---------------------------^
//
// What must survive this process is in the state folder. So instances run on if their controller is killed, and the
// next controller adopts them. An instance is the process group of its command. The group is signalled as a whole,
// and when the group's first process exits, its other processes are killed.
package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
)

var (
	// ErrFull says that every slot has an instance.
	ErrFull = errors.New("every slot is taken")
	// ErrInUse says that another driver uses the state folder.
	ErrInUse = errors.New("is in use by another process")
	// ErrClosed says that the driver has been closed.
	ErrClosed = errors.New("the scaler is closed")
)

// killWithin limits the wait until a process that was sent KILL has ended.
const killWithin = 5 * time.Second

// Driver starts and stops instances as local processes. It is safe for concurrent use.
type Driver struct {
	opts   Options
	folder *folder
	client *http.Client
	ctx    context.Context // the context of everything that runs in the background
	cancel context.CancelFunc
	cut    chan struct{} // closed when instances must end without waiting for their drain
	work   sync.WaitGroup

	mu       sync.Mutex
	ledger   *ledger
	running  map[string]*running // listed instances that have not exited
	orphans  []orphan            // instances that run, are not listed and cannot be adopted
	unsaved  error               // why the present ledger could not be written to disk
	closed   bool
	detached bool // exits of instances are no longer recorded
}

// New takes over the state folder and adopts the instances in it that still run; those that answer are ready at once. Instances that have
// ended count as failed, with the time at which they were last seen alive as their exit. It returns a *quell.UserError if opts or
// instances.json has mistakes, or if the folder is in use.
func New(opts Options) (*Driver, error) {
	opts = opts.withDefaults()
	if err := opts.check(); err != nil {
		return nil, err
	}
	folder, err := openFolder(opts.Dir)
	if err != nil {
		return nil, err
	}
	d := &Driver{opts: opts, folder: folder, client: newClient(), cut: make(chan struct{}), running: map[string]*running{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if err := d.adopt(); err != nil {
		d.cancel()
		return nil, errors.Join(err, folder.close())
	}
	d.work.Go(d.tend)
	return d, nil
}

// Members lists every instance that Start started and Stop has not ended, in order of start. If an instance ended while no driver ran, its
// exit is the time at which it was last seen alive.
func (d *Driver) Members(context.Context) ([]quell.Member, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	members := make([]quell.Member, 0, len(d.ledger.Instances))
	for _, r := range d.ledger.Instances {
		m := quell.Member{ID: r.ID, Type: r.Type, Address: r.Address, Probe: r.ProbeAddress, State: d.state(r), Started: r.Started}
		if r.Exited != nil {
			m.Exited = *r.Exited
		}
		members = append(members, m)
	}
	return members, nil
}

func (d *Driver) state(r *record) quell.State {
	switch {
	case r.Exited != nil:
		return quell.Failed
	case r.Stopping:
		return quell.Draining
	case d.running[r.ID].ready:
		return quell.Ready
	default:
		return quell.Starting
	}
}

// Start starts n instances and returns their ids. If it fails, it returns the ids of those already started and an error: ErrFull if no slot
// is free, ErrClosed, or why a process could not be run.
func (d *Driver) Start(ctx context.Context, n int) ([]string, error) {
	if n < 0 {
		return nil, fmt.Errorf("starting %d instances: the number is negative", n)
	}
	ids := make([]string, 0, n)
	for len(ids) < n {
		id, err := d.startOne(ctx)
		if err != nil {
			return ids, fmt.Errorf("starting instance %d of %d: %w", len(ids)+1, n, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Stop ends all given instances at the same time: with TERM, and after Options.Drain with KILL. It returns when they have ended, and
// removes failed ones from the list. An id that has ended already is no error. If an id was never given to an instance, that is an error
// and nothing is stopped. If ctx ends, Stop returns, and the instances still end.
func (d *Driver) Stop(ctx context.Context, ids []string) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return fmt.Errorf("stopping %s: %w", strings.Join(ids, ", "), ErrClosed)
	}
	for _, id := range ids {
		if d.ledger.find(id) == nil && !d.ledger.issued(d.opts.Prefix, id) {
			d.mu.Unlock()
			return fmt.Errorf("stopping %s: there is no instance %q", strings.Join(ids, ", "), id)
		}
	}
	ending := d.beginStop(ids)
	d.mu.Unlock()
	return d.await(ctx, ending, d.opts.Drain+killWithin)
}

// beginStop removes failed instances from the list, begins to end the others, and returns these. d.mu is held.
func (d *Driver) beginStop(ids []string) []*running {
	var ending, fresh []*running
	for _, id := range ids {
		r := d.ledger.find(id)
		switch {
		case r == nil:
		case r.Exited != nil:
			d.forget(r)
		default:
			in := d.running[id]
			if !r.Stopping {
				r.Stopping = true
				fresh = append(fresh, in)
			}
			ending = append(ending, in)
		}
	}
	d.saveOrWarn() // before the first signal, so that the next driver continues the stop
	for _, in := range fresh {
		d.work.Go(func() { d.end(in) })
	}
	return ending
}

func (d *Driver) await(ctx context.Context, ending []*running, bound time.Duration) error {
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for _, in := range ending {
		select {
		case <-in.exited:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to end: %w", in.ID, ctx.Err())
		case <-timer.C:
			return fmt.Errorf("%s (process %d) did not end, even when killed", in.ID, in.PID)
		}
	}
	return nil
}

// Close gives up the state folder. If keep is set, the instances continue and the next driver adopts them. Otherwise they are stopped, and
// killed if they have not ended when ctx ends. Close may be called more than once.
func (d *Driver) Close(ctx context.Context, keep bool) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	var ending []*running
	if !keep {
		ending = d.beginStop(d.ids())
	}
	d.mu.Unlock()

	err := d.await(ctx, ending, d.opts.Drain+killWithin)
	if err != nil && ctx.Err() != nil {
		close(d.cut)
		err = d.await(context.WithoutCancel(ctx), ending, killWithin)
	}
	d.cancel()
	d.work.Wait()
	return errors.Join(err, d.detach())
}

func (d *Driver) detach() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.detached = true
	return errors.Join(d.folder.save(d.ledger, d.opts.Now()), d.folder.close())
}

func (d *Driver) ids() []string {
	ids := make([]string, len(d.ledger.Instances))
	for i, r := range d.ledger.Instances {
		ids[i] = r.ID
	}
	return ids
}

// forget removes an instance that has exited from the list. d.mu is held.
func (d *Driver) forget(r *record) {
	d.ledger.remove(r)
	if err := d.folder.pruneLogs(func(id string) bool { return d.ledger.find(id) != nil }); err != nil {
		d.opts.Logger.Warn("old logs stay", "error", err)
	}
}

// saveOrWarn writes the ledger to disk. If that fails, for example on a full disk, the driver continues from memory and tries again until
// it succeeds. d.mu is held.
func (d *Driver) saveOrWarn() {
	err := d.folder.save(d.ledger, d.opts.Now())
	switch {
	case err != nil && d.unsaved == nil:
		d.opts.Logger.Error("a restart would not find the instances as they are", "error", err)
	case err == nil && d.unsaved != nil:
		d.opts.Logger.Info("the list of instances is written again")
	}
	d.unsaved = err
}

// saveMissed writes the ledger if writing it failed before, or if somebody removed the file.
func (d *Driver) saveMissed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := os.Stat(d.folder.path()); d.unsaved != nil || errors.Is(err, fs.ErrNotExist) {
		d.saveOrWarn()
	}
}
