package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/smithy-go"

	"github.com/quellhq/quell"
)

// orderAge is how long instances that were ordered are waited for. After that, they count as owed by AWS like any others.
const orderAge = 10 * time.Minute

// Start raises the desired capacity. Instances that AWS starts anyway in place of those that ended by themselves count towards n, so that
// one loss is not replaced twice. The ids come later.
func (d *Driver) Start(ctx context.Context, n int) ([]string, error) {
	if n < 0 {
		return nil, fmt.Errorf("starting %d instances: the number is negative", n)
	}
	if n == 0 {
		return nil, nil
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	p, err := d.fresh(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.rival(p), suspended(p, "Launch"), inUnits(p)); err != nil {
		return nil, fmt.Errorf("nothing is started: %w", err)
	}
	d.mu.Lock()
	coming := d.coming
	d.mu.Unlock()
	desired := int(sdk.ToInt32(p.group.DesiredCapacity))
	target := desired + max(0, n-max(0, owed(p)-coming))
	if most := int(sdk.ToInt32(p.group.MaxSize)); target > most {
		return nil, fmt.Errorf("nothing is started: %s may have at most %d instances, and %d are wanted. Raise it with `aws autoscaling "+
			"update-auto-scaling-group --auto-scaling-group-name %s --max-size %d`, or lower group.max", d.words(), most, target, d.opts.Group,
			target)
	}
	if target > desired {
		err = d.resize(ctx, desired, target)
	}
	if err == nil || errors.As(err, new(*quell.UnsureError)) {
		d.mu.Lock()
		d.coming += n
		d.ordered = d.opts.Now()
		d.mu.Unlock()
	}
	d.hurry()
	return nil, err
}

func (d *Driver) resize(ctx context.Context, from, to int) error {
	ctx, cancel := context.WithTimeout(ctx, d.opts.limit)
	defer cancel()
	_, err := d.api.write.SetDesiredCapacity(ctx, &autoscaling.SetDesiredCapacityInput{
		AutoScalingGroupName: &d.opts.Group, DesiredCapacity: sdk.Int32(int32(to)), //nolint:gosec // at most MaxSize
	})
	if err == nil {
		return nil
	}
	told := fmt.Errorf("raising the desired capacity of %s from %d to %d: %w", d.words(), from, to, plain(err))
	if mayHaveWorked(err) {
		return &quell.UnsureError{Err: told}
	}
	return told
}

// fresh looks now: what is written must not depend on a list that may be late.
func (d *Driver) fresh(ctx context.Context) (picture, error) {
	_ = d.look(ctx) // what matters of its errors is kept
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.errs.look != nil {
		return picture{}, fmt.Errorf("nothing is started or stopped: %w", d.errs.look)
	}
	if d.opts.Now().Sub(d.ordered).Abs() > orderAge {
		d.coming = 0
	}
	return d.now, nil
}

// Stop ends exactly these instances, and lowers the desired capacity with each. In place of one that ended by itself AWS starts another: so
// that one only leaves, and the desired capacity stays.
func (d *Driver) Stop(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	p, err := d.fresh(ctx)
	if err != nil {
		return err
	}
	defer d.hurry()
	members := make(map[string]*types.Instance, len(p.group.Instances))
	for i := range p.group.Instances {
		members[sdk.ToString(p.group.Instances[i].InstanceId)] = &p.group.Instances[i]
	}
	desired := int(sdk.ToInt32(p.group.DesiredCapacity))
	var errs []error
	for _, id := range ids {
		in := members[id]
		if in == nil {
			continue // it is gone
		}
		m, known := p.machines[id]
		state, _ := stateOf(in, m, known, false)
		alive := counts(in, m, known)
		if state == quell.Draining && !isStandby(in) { // it ends already
			d.Drained([]string{id})
			continue
		}
		err := d.kept(p, in, alive, desired)
		if err == nil {
			err = d.terminate(ctx, id, alive)
		}
		switch {
		case err != nil:
			errs = append(errs, err)
		case alive:
			desired--
		}
		if err == nil {
			d.Drained([]string{id})
		}
	}
	return errors.Join(errs...)
}

func isStandby(in *types.Instance) bool {
	return strings.HasSuffix(string(in.LifecycleState), "Standby")
}

// kept returns why an instance must not be stopped.
func (d *Driver) kept(p picture, in *types.Instance, alive bool, desired int) error {
	id := sdk.ToString(in.InstanceId)
	least := int(sdk.ToInt32(p.group.MinSize))
	var err error
	switch {
	case isStandby(in):
		err = errors.New("a person put it into standby")
	case sdk.ToBool(in.ProtectedFromScaleIn) && !d.opts.StopProtected:
		err = fmt.Errorf("it is protected from scale-in. `aws autoscaling set-instance-protection --no-protected-from-scale-in "+
			"--auto-scaling-group-name %s --instance-ids %s` ends that; scaler.stop_protected: true makes Quell stop such instances",
			d.opts.Group, id)
	case alive && desired <= least:
		err = fmt.Errorf("%s must have at least %d instances (--min-size)", d.words(), least)
	case alive:
		err = errors.Join(d.rival(p), inUnits(p))
	}
	if err = errors.Join(err, suspended(p, "Terminate")); err != nil {
		return fmt.Errorf("%s is not stopped: %w", id, err)
	}
	return nil
}

func (d *Driver) terminate(ctx context.Context, id string, fewer bool) error {
	ctx, cancel := context.WithTimeout(ctx, d.opts.limit)
	defer cancel()
	_, err := d.api.write.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &id, ShouldDecrementDesiredCapacity: &fewer,
	})
	if err != nil {
		return fmt.Errorf("stopping %s: %w", id, plain(err))
	}
	return nil
}

// mayHaveWorked returns whether a write may have been carried out although it failed.
func mayHaveWorked(err error) bool {
	if answered, ok := errors.AsType[*awshttp.ResponseError](err); ok && answered.HTTPStatusCode() != 0 {
		return answered.HTTPStatusCode() >= http.StatusInternalServerError || answered.HTTPStatusCode() == http.StatusOK
	}
	var op *net.OpError
	return !errors.As(err, &op) || op.Op != "dial"
}

// isThrottled returns whether AWS refused because of the number of requests. The error may be one of many.
func isThrottled(err error) bool {
	switch e := err.(type) {
	case smithy.APIError:
		_, throttled := retry.DefaultThrottleErrorCodes[e.ErrorCode()]
		return throttled
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), isThrottled)
	}
	return err != nil && isThrottled(errors.Unwrap(err))
}
