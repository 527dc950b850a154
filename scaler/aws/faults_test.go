package aws

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/quellhq/quell"
)

// refused checks that nothing is written, and that the error says why.
func (r *rig) refused(err error, why ...string) {
	r.t.Helper()
	if err == nil || len(r.carried()) > 0 {
		r.t.Fatalf("err = %v, writes: %v", err, r.carried())
	}
	for _, w := range why {
		if !strings.Contains(err.Error(), w) {
			r.t.Errorf("%q does not say %q", err, w)
		}
	}
}

// TestBesideAPolicy checks that nothing is started or stopped beside a scaling policy of AWS, unless a person wants that.
func TestBesideAPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.must(r.admin.PutScalingPolicy(t.Context(), &autoscaling.PutScalingPolicyInput{
		AutoScalingGroupName: &r.group, PolicyName: sdk.String("cpu60"), PolicyType: sdk.String("TargetTrackingScaling"),
		TargetTrackingConfiguration: &types.TargetTrackingConfiguration{
			TargetValue: sdk.Float64(60), PredefinedMetricSpecification: &types.PredefinedMetricSpecification{
				PredefinedMetricType: types.MetricTypeASGAverageCPUUtilization,
			},
		},
	}))
	d := r.driver()
	ids := ready(t, d, 2)
	const name = "cpu60 (TargetTrackingScaling)"
	reported(t, d, name)
	_, err := d.Start(t.Context(), 1)
	r.refused(err, name, "delete-policy")
	r.refused(d.Stop(t.Context(), ids[:1]), name)
	r.opts.advises = true // that is what advice is for
	adviser := r.driver()
	ready(t, adviser, 2)
	if err := adviser.Report(); err != nil {
		t.Errorf("in advise mode: %v", err)
	}
	r.opts.BesidePolicies, r.opts.advises = true, false
	told := r.driver()
	ready(t, told, 2)
	if _, err := told.Start(t.Context(), 1); err != nil || r.desired() != 3 {
		t.Errorf("beside_policies: %v, desired capacity %d", err, r.desired())
	}
	if err := told.Report(); err != nil {
		t.Errorf("Report = %v", err)
	}
}

// TestKept checks what a person protected, and the group's bounds.
func TestKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	d := r.driver()
	ids := ready(t, d, 2)
	r.must(r.admin.SetInstanceProtection(t.Context(), &autoscaling.SetInstanceProtectionInput{
		AutoScalingGroupName: &r.group, InstanceIds: ids[:1], ProtectedFromScaleIn: sdk.Bool(true),
	}))
	r.refused(d.Stop(t.Context(), ids[:1]), ids[0], "protected from scale-in", "set-instance-protection", "stop_protected")
	_, err := d.Start(t.Context(), 9)
	r.refused(err, "at most 10 instances, and 11 are wanted", "--max-size 11")
	r.must(r.admin.SuspendProcesses(t.Context(), &autoscaling.SuspendProcessesInput{
		AutoScalingGroupName: &r.group, ScalingProcesses: []string{"Launch", "Terminate"},
	}))
	_, err = d.Start(t.Context(), 1)
	r.refused(err, "process Launch is suspended", "resume-processes")
	r.refused(d.Stop(t.Context(), ids[1:]), "process Terminate is suspended")
	reported(t, d, "Launch is suspended")
	r.must(r.admin.ResumeProcesses(t.Context(), &autoscaling.ResumeProcessesInput{AutoScalingGroupName: &r.group}))
	r.must(r.admin.UpdateAutoScalingGroup(t.Context(), &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: &r.group, MinSize: sdk.Int32(2),
	}))
	r.refused(d.Stop(t.Context(), ids[1:]), "must have at least 2 instances")
	r.set(func() { r.states[ids[1]] = "Standby" })
	inState(t, d, ids[1], quell.Draining)
	r.refused(d.Stop(t.Context(), ids[1:]), "standby")
	r.opts.StopProtected = true
	r.must(r.admin.UpdateAutoScalingGroup(t.Context(), &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: &r.group, MinSize: sdk.Int32(1),
	}))
	stop(t, r.driver(), ids[:1])
	if n := r.desired(); n != 1 {
		t.Errorf("desired capacity = %d", n)
	}
}

// TestSpotNotice checks that an instance drains as soon as AWS has announced its end.
func TestSpotNotice(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	d := r.driver()
	ids := ready(t, d, 2)
	r.set(func() {
		r.answer["DescribeInstances"] = "<R><reservationSet><item><instancesSet><item><instanceId>" + ids[0] + "</instanceId><instanceState>" +
			"<name>running</name></instanceState><instanceLifecycle>spot</instanceLifecycle></item><item><instanceId>" + ids[1] +
			"</instanceId><instanceState><name>shutting-down</name></instanceState></item></instancesSet></item></reservationSet></R>"
		r.refuse["DescribeSpotInstanceRequests"] = "UnauthorizedOperation"
	})
	inState(t, d, ids[1], quell.Draining) // it was ended outside
	reported(t, d, "asking which spot instances end: refused for a test. The rights")
	r.set(func() {
		delete(r.refuse, "DescribeSpotInstanceRequests")
		r.answer["DescribeSpotInstanceRequests"] = "<R><spotInstanceRequestSet><item><instanceId>" + ids[0] +
			"</instanceId></item></spotInstanceRequestSet></R>"
	})
	inState(t, d, ids[0], quell.Draining)
}

// TestAwsIsAway checks that the last list stays while AWS does not answer, or refuses requests because there are too many.
func TestAwsIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.set(func() { r.cut = true })
	d := r.driver()
	until(t, "Members says that AWS is away", func() bool {
		_, err := d.Members(t.Context())
		return err != nil && strings.Contains(err.Error(), "the cable is cut")
	})
	r.set(func() { r.cut = false })
	ids := ready(t, d, 2)
	r.set(func() { r.cut = true })
	reported(t, d, "the cable is cut")
	ready(t, d, 2)
	_, err := d.Start(t.Context(), 1)
	r.refused(err, "nothing is started or stopped", "the cable is cut")
	r.refused(d.Stop(t.Context(), ids))
	r.set(func() { r.cut = false; r.refuse["DescribeAutoScalingGroups"] = "Throttling" })
	reported(t, d, "too many in this account (Throttling)")
	r.set(func() { delete(r.refuse, "DescribeAutoScalingGroups"); r.refuse["SetDesiredCapacity"] = "AccessDenied" })
	until(t, "AWS refuses the write", func() bool { // the SDK still asks seldom
		_, err = d.Start(t.Context(), 1)
		return err != nil && strings.Contains(err.Error(), "from 2 to 3")
	})
	r.refused(err, "refused for a test. The rights that are needed")
	if errors.As(err, new(*quell.UnsureError)) {
		t.Errorf("%v may have been carried out", err)
	}
}

// TestCannotLaunch checks that AWS's own words are said while instances are missing.
func TestCannotLaunch(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	d := r.driver()
	ids := ready(t, d, 2)
	r.set(func() {
		r.states[ids[0]] = "Terminating"
		r.answer["DescribeScalingActivities"] = "<R><DescribeScalingActivitiesResult><Activities><member><StatusCode>Failed</StatusCode>" +
			"<StatusMessage>We currently do not have sufficient t3.medium capacity</StatusMessage></member></Activities>" +
			"</DescribeScalingActivitiesResult></R>"
	})
	reported(t, d, "cannot start instances: We currently do not have sufficient t3.medium capacity")
	r.set(func() { r.states[ids[0]] = "Pending" })
	until(t, "nothing is said", func() bool { return d.Report() == nil })
}

// TestNoSuchGroup checks what is said if there is no group of this name.
func TestNoSuchGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.opts.Group = "wbe"
	d := r.driver()
	const want = "there is no Auto Scaling group wbe in region eu-west-1"
	if _, err := d.Members(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Members = %v", err)
	}
}

// TestRightsAreThoseUsed compares the rights on the page and in the example with the requests of a life.
func TestRightsAreThoseUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	d := r.driver()
	ids := ready(t, d, 3)
	if _, err := d.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	stop(t, d, ids[:1])
	r.set(func() {
		r.states[ids[1]] = "Terminating:Wait"
		r.answer["CompleteLifecycleAction"] = "<R><CompleteLifecycleActionResult/></R>"
		r.answer["DescribeInstances"] = "<R><reservationSet><item><instancesSet><item><instanceId>" + ids[2] + "</instanceId>" +
			"<instanceLifecycle>spot</instanceLifecycle></item></instancesSet></item></reservationSet></R>"
	})
	until(t, "everything was asked for", func() bool {
		d.Drained(ids[1:2]) // in each step: a look that began before may find it in service still
		return slices.Contains(r.carried(), "CompleteLifecycleAction "+ids[1])
	})
	_ = d.Close()
	example, err := os.ReadFile("../../examples/aws/policy.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/platforms/aws.md")
	if err != nil || !bytes.Contains(page, example) {
		t.Error("docs/platforms/aws.md does not show examples/aws/policy.json", err)
	}
	granted := map[string]bool{}
	for _, action := range regexp.MustCompile(`"(?:autoscaling|ec2):([A-Za-z]+)"`).FindAllSubmatch(example, -1) {
		granted[string(action[1])] = true
	}
	for action := range r.asked {
		if !granted[action] {
			t.Errorf("%s is used and not granted", action)
		}
		delete(granted, action)
	}
	if len(granted) > 0 {
		t.Errorf("granted and not used: %v", granted)
	}
}
