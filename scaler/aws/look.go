package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/quellhq/quell"
)

// look asks AWS once for everything, and completes lifecycle hooks of instances that have drained. If the list cannot be had, the last one
// stays.
func (d *Driver) look(ctx context.Context) error {
	d.looking.Lock()
	defer d.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, d.opts.limit)
	defer cancel()
	next, err := d.ask(ctx)
	if err != nil {
		err = plain(err)
		d.mu.Lock()
		d.errs.look = err
		d.mu.Unlock()
		return err
	}
	policies, policiesErr := d.askPolicies(ctx)
	notices, noticesErr := d.askNotices(ctx, next)
	launchErr := d.askActivities(ctx, next)
	d.logWarmPool(&next.group)
	d.mu.Lock()
	next.policies, next.policiesErr, next.notices = policies, policiesErr, notices
	d.errs = failures{notices: noticesErr, launch: launchErr, hook: d.errs.hook}
	d.take(next)
	d.mu.Unlock()
	hookErr := d.completeHooks(ctx, next)
	d.mu.Lock()
	d.errs.hook = hookErr
	d.mu.Unlock()
	select {
	case <-d.first:
	default:
		close(d.first)
	}
	return errors.Join(policiesErr, noticesErr, launchErr, hookErr)
}

// ask reads the group and its machines.
func (d *Driver) ask(ctx context.Context) (picture, error) {
	if d.api == nil {
		api, err := connect(ctx, &d.opts)
		if err != nil {
			return picture{}, err
		}
		d.api = api
	}
	group, err := d.group(ctx)
	if err != nil {
		return picture{}, err
	}
	machines, err := d.api.machines(ctx, d.opts.Group)
	if err != nil {
		return picture{}, fmt.Errorf("reading the addresses of %s: %w", d.words(), err)
	}
	return picture{region: d.api.region, group: group, machines: machines}, nil
}

// group reads the group, with its instances sorted.
func (d *Driver) group(ctx context.Context) (types.AutoScalingGroup, error) {
	out, err := d.api.read.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{d.opts.Group},
	})
	if err != nil {
		return types.AutoScalingGroup{}, fmt.Errorf("reading %s: %w", d.words(), err)
	}
	if len(out.AutoScalingGroups) == 0 {
		return types.AutoScalingGroup{}, fmt.Errorf("there is no %s in region %s", d.words(), d.api.region)
	}
	group := out.AutoScalingGroups[0]
	slices.SortFunc(group.Instances, func(a, b types.Instance) int {
		return cmp.Compare(sdk.ToString(a.InstanceId), sdk.ToString(b.InstanceId))
	})
	return group, nil
}

// lastActivity returns the newest activity of the group, nil if there is none.
func (d *Driver) lastActivity(ctx context.Context) (*types.Activity, error) {
	out, err := d.api.read.DescribeScalingActivities(ctx, &autoscaling.DescribeScalingActivitiesInput{
		AutoScalingGroupName: &d.opts.Group, MaxRecords: sdk.Int32(1),
	})
	if err != nil || len(out.Activities) == 0 {
		return nil, err
	}
	return &out.Activities[0], nil
}

// take stores a picture. Instances that were not there before are those that Start ordered, as far as it ordered any. Other machines'
// clocks are only believed for what was there before. That an instance has drained is forgotten once it serves again.
func (d *Driver) take(next picture) {
	now, started, leaving := d.opts.Now(), map[string]time.Time{}, map[string]bool{}
	for i := range next.group.Instances {
		in := &next.group.Instances[i]
		id := sdk.ToString(in.InstanceId)
		m, known := next.machines[id]
		state, _ := stateOf(in, m, known, next.notices[id])
		leaving[id] = state == quell.Draining
		since, old := d.seen[id]
		if !old {
			since = now
			if launched := m.Launched; d.seen == nil && !launched.IsZero() && launched.Before(now) {
				since = launched
			}
			if d.seen != nil {
				d.coming = max(0, d.coming-1)
			}
		}
		started[id] = since
	}
	d.now, d.seen = next, started
	for id := range d.drained {
		if !leaving[id] {
			delete(d.drained, id)
			delete(d.ended, id)
		}
	}
}

// askPolicies reads the group's scaling policies, seldom unless that failed. It returns the last ones if they cannot be had.
func (d *Driver) askPolicies(ctx context.Context) ([]types.ScalingPolicy, error) {
	d.mu.Lock()
	last, failed := d.now.policies, d.now.policiesErr
	d.mu.Unlock()
	if now := d.opts.Now(); failed == nil && !d.rareAt.IsZero() && now.Sub(d.rareAt).Abs() < rarely {
		return last, nil
	}
	var policies []types.ScalingPolicy
	pages := autoscaling.NewDescribePoliciesPaginator(d.api.read, &autoscaling.DescribePoliciesInput{AutoScalingGroupName: &d.opts.Group})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return last, fmt.Errorf("reading the scaling policies of %s: %w", d.words(), plain(err))
		}
		policies = append(policies, page.ScalingPolicies...)
	}
	d.rareAt = d.opts.Now()
	return policies, nil
}

// askNotices asks which spot instances AWS is about to end, if there are spot instances.
func (d *Driver) askNotices(ctx context.Context, p picture) (map[string]bool, error) {
	for _, m := range p.machines {
		if m.Lifecycle == "spot" {
			notices, err := d.api.notices(ctx)
			if err != nil {
				return nil, fmt.Errorf("asking which spot instances end: %w", plain(err))
			}
			return notices, nil
		}
	}
	return nil, nil
}

// askActivities asks why there are fewer instances than there should be. The last failure is said until they are there.
func (d *Driver) askActivities(ctx context.Context, p picture) error {
	if owed(p) <= 0 {
		d.whyAt = time.Time{}
		return nil
	}
	d.mu.Lock()
	last := d.errs.launch
	d.mu.Unlock()
	now := d.opts.Now()
	if !d.whyAt.IsZero() && now.Sub(d.whyAt).Abs() < activityAge {
		return last
	}
	d.whyAt = now
	a, err := d.lastActivity(ctx)
	if err != nil {
		return fmt.Errorf("asking why %s lacks instances: %w", d.words(), plain(err))
	}
	if a != nil && a.StatusCode == types.ScalingActivityStatusCodeFailed {
		return fmt.Errorf("%s cannot start instances: %s", d.words(), sdk.ToString(a.StatusMessage))
	}
	return nil
}

// completeHooks completes the lifecycle hook of drained instances that AWS keeps until then.
func (d *Driver) completeHooks(ctx context.Context, p picture) error {
	if d.opts.Hook == "" {
		return nil
	}
	var errs []error
	for i := range p.group.Instances {
		in := &p.group.Instances[i]
		id := sdk.ToString(in.InstanceId)
		d.mu.Lock()
		due := in.LifecycleState == types.LifecycleStateTerminatingWait && d.drained[id] && !d.ended[id]
		d.mu.Unlock()
		if !due {
			continue
		}
		_, err := d.api.write.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
			AutoScalingGroupName: &d.opts.Group, LifecycleHookName: &d.opts.Hook, InstanceId: &id, LifecycleActionResult: sdk.String("CONTINUE"),
		})
		if err != nil && !strings.Contains(err.Error(), "No active Lifecycle Action found") {
			errs = append(errs, fmt.Errorf("completing the lifecycle hook %s of %s: %w", d.opts.Hook, id, plain(err)))
			continue
		}
		d.mu.Lock()
		d.ended[id] = true
		d.mu.Unlock()
	}
	return errors.Join(errs...)
}

func (d *Driver) logWarmPool(g *types.AutoScalingGroup) {
	if n := sdk.ToInt32(g.WarmPoolSize); n != max(0, d.warm) && d.opts.Logger != nil {
		d.opts.Logger.Info("size of the warm pool: instances that start faster", "group", d.opts.Group, "instances", n)
		d.warm = n
	}
}

// stateOf returns the state of an instance of the group. listed is false if it is no member: it is in the warm pool, or has left.
func stateOf(in *types.Instance, m machine, known, notice bool) (state quell.State, listed bool) {
	name := string(in.LifecycleState)
	switch {
	case strings.HasPrefix(name, "Warmed:"), name == "Terminated", name == "Detached":
		return "", false
	case strings.HasPrefix(name, "Terminating"), name == "Detaching", strings.HasSuffix(name, "Standby"):
		return quell.Draining, true
	case name != "InService":
		return quell.Starting, true
	case notice, known && (m.State == "shutting-down" || m.State == "stopping"):
		return quell.Draining, true
	case known && (m.State == "terminated" || m.State == "stopped"), sdk.ToString(in.HealthStatus) == "Unhealthy":
		return quell.Failed, true
	}
	return quell.Ready, true
}

// counts returns whether AWS counts an instance as one of the desired capacity that it need not replace.
func counts(in *types.Instance, m machine, known bool) bool {
	state, listed := stateOf(in, m, known, false)
	return listed && (state == quell.Ready || state == quell.Starting)
}

// owed returns how many instances AWS has yet to start: for those that were ordered, and in place of those that ended by themselves.
func owed(p picture) int {
	alive := 0
	for i := range p.group.Instances {
		m, known := p.machines[sdk.ToString(p.group.Instances[i].InstanceId)]
		if counts(&p.group.Instances[i], m, known) {
			alive++
		}
	}
	return int(sdk.ToInt32(p.group.DesiredCapacity)) - alive
}
