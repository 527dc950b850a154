package aws

import (
	"errors"
	"fmt"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/smithy-go"

	"github.com/quellhq/quell"
)

func TestStateOf(t *testing.T) {
	for name, tc := range map[string]struct {
		lifecycle, health, machine string
		notice                     bool
		want                       quell.State // "": no member
	}{
		"it serves":                          {"InService", "Healthy", "running", false, quell.Ready},
		"EC2 does not know it yet":           {"InService", "Healthy", "", false, quell.Ready},
		"it starts":                          {"Pending", "Healthy", "pending", false, quell.Starting},
		"a hook keeps it before it starts":   {"Pending:Wait", "Healthy", "running", false, quell.Starting},
		"its root volume is replaced":        {"ReplacingRootVolume", "Healthy", "running", false, quell.Starting},
		"a spot notice":                      {"InService", "Healthy", "running", true, quell.Draining},
		"ended outside":                      {"InService", "Healthy", "shutting-down", false, quell.Draining},
		"ended outside, and gone":            {"InService", "Healthy", "terminated", false, quell.Failed},
		"stopped outside":                    {"InService", "Healthy", "stopped", false, quell.Failed},
		"AWS finds it unhealthy":             {"InService", "Unhealthy", "running", false, quell.Failed},
		"AWS ends it":                        {"Terminating", "Unhealthy", "running", false, quell.Draining},
		"a hook keeps it until it is empty":  {"Terminating:Wait", "Healthy", "running", false, quell.Draining},
		"a person detaches it":               {"Detaching", "Healthy", "running", false, quell.Draining},
		"a person put it into standby":       {"Standby", "Healthy", "running", false, quell.Draining},
		"the warm pool":                      {"Warmed:Stopped", "Healthy", "stopped", false, ""},
		"it has ended":                       {"Terminated", "Healthy", "terminated", false, ""},
		"it left with a person":              {"Detached", "Healthy", "running", false, ""},
		"a person is about to put it asleep": {"EnteringStandby", "Healthy", "running", false, quell.Draining},
	} {
		in := types.Instance{LifecycleState: types.LifecycleState(tc.lifecycle), HealthStatus: &tc.health}
		got, listed := stateOf(&in, machine{State: tc.machine}, tc.machine != "", tc.notice)
		if got != tc.want || listed != (tc.want != "") {
			t.Errorf("%s: %q, listed %t", name, got, listed)
		}
	}
}

func TestActs(t *testing.T) {
	predictive := func(mode types.PredictiveScalingMode) types.ScalingPolicy {
		return types.ScalingPolicy{PolicyType: sdk.String("PredictiveScaling"),
			PredictiveScalingConfiguration: &types.PredictiveScalingConfiguration{Mode: mode}}
	}
	for name, tc := range map[string]struct {
		policy types.ScalingPolicy
		alarms bool
		want   bool
	}{
		"a target":                    {types.ScalingPolicy{PolicyType: sdk.String("TargetTrackingScaling")}, true, true},
		"steps":                       {types.ScalingPolicy{PolicyType: sdk.String("StepScaling")}, true, true},
		"disabled":                    {types.ScalingPolicy{PolicyType: sdk.String("StepScaling"), Enabled: sdk.Bool(false)}, true, false},
		"alarms are suspended":        {types.ScalingPolicy{PolicyType: sdk.String("StepScaling")}, false, false},
		"a forecast that acts":        {predictive(types.PredictiveScalingModeForecastAndScale), false, true},
		"a forecast that only looks":  {predictive(types.PredictiveScalingModeForecastOnly), true, false},
		"a forecast without settings": {types.ScalingPolicy{PolicyType: sdk.String("PredictiveScaling")}, true, false},
	} {
		if got := acts(&tc.policy, tc.alarms); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A group whose capacity counts more than instances is not changed.
func TestInUnits(t *testing.T) {
	weighted := func(w string) picture {
		return picture{group: types.AutoScalingGroup{Instances: []types.Instance{{WeightedCapacity: &w}}}}
	}
	for name, tc := range map[string]struct {
		p    picture
		want bool
	}{
		"instances":         {picture{group: types.AutoScalingGroup{DesiredCapacityType: sdk.String("units")}}, false},
		"processors":        {picture{group: types.AutoScalingGroup{DesiredCapacityType: sdk.String("vcpu")}}, true},
		"weights of 1":      {weighted("1"), false},
		"different weights": {weighted("4"), true},
	} {
		if err := inUnits(tc.p); (err != nil) != tc.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := picture{policiesErr: errors.New("no right")}
	if err := (&Driver{}).rival(p); err == nil {
		t.Error("without the list of policies something is started")
	}
}

func TestAddress(t *testing.T) {
	m := machine{Private: "10.0.0.1", IPv6: "2001:db8::1"}
	for use, want := range map[address]string{private: "10.0.0.1:80", public: "", ipv6: "[2001:db8::1]:80"} {
		if got := m.address(use, 80); got != want {
			t.Errorf("%s: %q, want %q", use, got, want)
		}
	}
}

// Only requests that AWS refuses because there are too many make looks rarer, whatever else does not work; and only while it refuses some.
func TestPace(t *testing.T) {
	throttled := fmt.Errorf("reading: %w", plain(fmt.Errorf("the SDK: %w", &smithy.GenericAPIError{Code: "Throttling"})))
	denied := plain(&smithy.GenericAPIError{Code: "AccessDenied", Message: "no"})
	other := errors.New("the group cannot start instances")
	wait := 10 * time.Second
	for i, c := range []struct {
		err  error
		want time.Duration
	}{
		{nil, 10 * time.Second},
		{throttled, 20 * time.Second},
		{errors.Join(denied, throttled), 40 * time.Second},
		{fmt.Errorf("looking: %w", errors.Join(denied, errors.Join(other, throttled))), time.Minute},
		{errors.Join(denied, other), 10 * time.Second},
		{throttled, 20 * time.Second},
		{other, 10 * time.Second},
	} {
		if wait = pace(wait, 10*time.Second, c.err); wait != c.want {
			t.Errorf("look %d: %v is waited after %v, want %v", i, wait, c.err, c.want)
		}
	}
	if wait := pace(2*time.Minute, 2*time.Minute, throttled); wait != 2*time.Minute {
		t.Errorf("looks that are rare anyway become more frequent: %v", wait)
	}
}
