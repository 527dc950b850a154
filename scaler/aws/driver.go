// Package aws is the scaler for the instances of an EC2 Auto Scaling group. It asks AWS in the background, so that decisions go on while
// AWS does not answer, with the instances that were listed last.
//
// Instances are started by a higher desired capacity. Stopped are exactly those that were chosen, and the desired capacity is lowered with
// each. An instance's id is that of EC2.
package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/quellhq/quell"
)

// Waits.
const (
	requestWait = 5 * time.Second // for one look, and for one write
	patience    = 5 * time.Second // for the first list
	mostWait    = time.Minute     // between two looks while AWS refuses requests
	rarely      = time.Minute     // between two looks at what seldom changes: scaling policies
	activityAge = 30 * time.Second
)

// Options say what is scaled and how it is reached.
type Options struct {
	Settings
	Logger *slog.Logger
	Now    func() time.Time // nil: time.Now
	// Load returns the SDK's configuration; nil: that of the environment, the user's files and the machine's role.
	Load func(ctx context.Context) (sdk.Config, error)
	// limit of one look and of one write; 0: requestWait.
	limit time.Duration
}

// Driver scales the group. It is safe for concurrent use.
type Driver struct {
	opts    Options
	stop    context.CancelFunc
	done    chan struct{}
	first   chan struct{} // closed when AWS has answered once
	again   chan struct{} // asks for a look at once
	writing sync.Mutex    // never more than one write is in flight

	looking sync.Mutex // guards the fields below, which only a look uses
	api     *clients   // nil until the configuration is loaded
	rareAt  time.Time  // when scaling policies were asked for
	whyAt   time.Time  // when the group's activities were asked for
	warm    int32      // size of the warm pool, as it was logged last

	mu      sync.Mutex
	now     picture
	seen    map[string]time.Time // when each member was started, or listed first
	coming  int                  // instances that Start ordered and that are not listed yet
	ordered time.Time            // when it did last
	drained map[string]bool      // they get no more requests
	ended   map[string]bool      // their lifecycle hook is completed
	errs    failures
}

// picture is the group as it was seen last.
type picture struct {
	region   string
	group    types.AutoScalingGroup
	machines map[string]machine
	notices  map[string]bool // spot instances that AWS is about to end

	policies    []types.ScalingPolicy
	policiesErr error // why they may be out of date
}

// failures are what did not work in the last look.
type failures struct {
	look, notices, hook, launch error
}

// New makes a driver and begins to ask. It does not wait for AWS.
func New(opts Options) *Driver {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.limit = cmp.Or(opts.limit, requestWait)
	ctx, cancel := context.WithCancel(context.Background())
	d := &Driver{opts: opts, stop: cancel, done: make(chan struct{}), first: make(chan struct{}), again: make(chan struct{}, 1),
		drained: map[string]bool{}, ended: map[string]bool{}, warm: -1}
	go d.run(ctx)
	return d
}

// Close ends the requests. The instances run on.
func (d *Driver) Close() error {
	d.stop()
	<-d.done
	return nil
}

// run looks again and again. While AWS refuses requests, it waits longer.
func (d *Driver) run(ctx context.Context) {
	defer close(d.done)
	wait := d.opts.Every
	for ctx.Err() == nil {
		wait = pace(wait, d.opts.Every, d.look(ctx))
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-d.again:
		}
		timer.Stop()
	}
}

// pace returns how long to wait after a look with this error, given how long it was before it. Errors that last, such as instances that
// cannot be started, are no reason to look seldom.
func pace(last, every time.Duration, err error) time.Duration {
	if isThrottled(err) {
		return max(every, min(2*last, mostWait))
	}
	return every
}

// hurry asks for a look at once.
func (d *Driver) hurry() {
	select {
	case d.again <- struct{}{}:
	default:
	}
}

// words names the group in messages.
func (d *Driver) words() string { return "Auto Scaling group " + d.opts.Group }

// Members lists the instances of the group. While AWS does not answer, they are those that were listed last, and Report says so. There is
// an error only if there was no list yet.
func (d *Driver) Members(ctx context.Context) ([]quell.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-d.first:
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		return nil, fmt.Errorf("instances of %s: %w", d.words(), orElse(d.errs.look, errors.New("AWS has not answered yet")))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	members := make([]quell.Member, 0, len(d.now.group.Instances))
	for i := range d.now.group.Instances {
		in := &d.now.group.Instances[i]
		id := sdk.ToString(in.InstanceId)
		m, known := d.now.machines[id]
		state, listed := stateOf(in, m, known, d.now.notices[id])
		if !listed {
			continue
		}
		members = append(members, quell.Member{
			ID: id, Type: sdk.ToString(in.InstanceType), State: state, Started: d.seen[id],
			Address: m.address(d.opts.Use, d.opts.Port), Probe: m.address(d.opts.Use, d.opts.ProbePort),
		})
	}
	return members, nil
}

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// Drained notes that instances which the platform is ending have no more requests, so that their lifecycle hook can be completed.
func (d *Driver) Drained(ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		if !d.drained[id] {
			d.drained[id] = true
			d.hurry()
		}
	}
}
