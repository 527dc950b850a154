package aws

import (
	"context"
	"errors"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/quellhq/quell/scaler"
)

// answers checks that each of these texts is part of one line, as `quell config check --online` writes it, and that no other line fails.
func answers(t *testing.T, what string, got []scaler.Answer, want ...string) {
	t.Helper()
	var text strings.Builder
	fails := 0
	for _, a := range got {
		if a.Err != nil {
			fails++
			text.WriteString("FAILED " + a.Asked + ": " + a.Err.Error() + "\n")
		} else {
			text.WriteString(a.Asked + ": " + a.Got + "\n")
		}
	}
	for _, w := range want {
		if strings.HasPrefix(w, "FAILED") {
			fails--
		}
		if !strings.Contains(text.String(), w) {
			t.Errorf("%s: %q is missing in\n%s", what, w, text.String())
		}
	}
	if fails != 0 {
		t.Errorf("%s: %d more failures than expected:\n%s", what, fails, text.String())
	}
}

// TestAsk asks the stand-in for AWS what `quell config check --online` asks AWS.
func TestAsk(t *testing.T) {
	t.Parallel()
	const user = "arn:aws:sts::123456789012:user/moto"
	r := newRig(t, 2)
	answers(t, "all is well", ask(t.Context(), r.opts), "AWS: whose credentials: "+user+" in region eu-west-1\n",
		"AWS: Auto Scaling group "+r.group+": 2 instances, 2 desired, 1 to 10 allowed\n", "AWS: addresses of the instances: 2\n",
		"AWS: notices of spot instances: 0\n", "AWS: what the group did last: ", "AWS: what else changes the group: nothing\n",
		"AWS: rights to change the group: not asked, because AWS has no way to do so without a change: autoscaling:SetDesiredCapacity, "+
			"autoscaling:TerminateInstanceInAutoScalingGroup, autoscaling:CompleteLifecycleAction must be in the policy")

	r.set(func() {
		r.refuse["DescribeInstances"] = "UnauthorizedOperation"
		r.refuse["DescribePolicies"], r.refuse["DescribeScalingActivities"] = "AccessDenied", "AccessDenied"
	})
	const rest = ": refused for a test. The rights that are needed are in docs/platforms/aws.md\n"
	answers(t, "rights are missing", ask(t.Context(), r.opts),
		"FAILED AWS: addresses of the instances: "+user+" lacks the right ec2:DescribeInstances"+rest,
		"FAILED AWS: what the group did last: "+user+" lacks the right autoscaling:DescribeScalingActivities"+rest,
		"FAILED AWS: what else changes the group: "+user+" lacks the right autoscaling:DescribePolicies"+rest)

	r.set(func() { clear(r.refuse) })
	r.must(r.admin.PutScalingPolicy(t.Context(), &autoscaling.PutScalingPolicyInput{
		AutoScalingGroupName: &r.group, PolicyName: sdk.String("more"), AdjustmentType: sdk.String("ChangeInCapacity"),
		ScalingAdjustment: sdk.Int32(1), PolicyType: sdk.String("SimpleScaling"),
	}))
	r.must(r.admin.SuspendProcesses(t.Context(), &autoscaling.SuspendProcessesInput{
		AutoScalingGroupName: &r.group, ScalingProcesses: []string{"Launch"},
	}))
	answers(t, "a policy and a suspended process", ask(t.Context(), r.opts),
		"FAILED AWS: what else changes the group: scaling policies change Auto Scaling group "+r.group+", too", "more (SimpleScaling)",
		"the process Launch is suspended")
	r.opts.advises = true
	answers(t, "when Quell only advises", ask(t.Context(), r.opts), "AWS: what else changes the group: before `mode: act`: scaling policies")
	if writes := r.carried(); len(writes) > 0 {
		t.Errorf("asking has changed something: %v", writes)
	}
}

// TestAskInVain checks what is said without credentials, without the group, and without AWS.
func TestAskInVain(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	opts := r.opts
	opts.Group = "wbe"
	answers(t, "no such group", ask(t.Context(), opts),
		"FAILED AWS: Auto Scaling group wbe: there is no Auto Scaling group wbe in region eu-west-1",
		"AWS: addresses of the instances: 0\n", "AWS: what the group did last: nothing\n")
	opts.Load = func(ctx context.Context) (sdk.Config, error) {
		config, err := r.opts.Load(ctx)
		config.Credentials = sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) {
			return sdk.Credentials{}, errors.New("no role found")
		})
		return config, err
	}
	answers(t, "no credentials", ask(t.Context(), opts),
		"FAILED AWS: whose credentials: ", "no role found. Give this machine a role, or set AWS_PROFILE")
	r.set(func() { r.refuse["GetCallerIdentity"] = "InvalidClientTokenId" })
	answers(t, "a wrong key", ask(t.Context(), r.opts),
		"FAILED AWS: whose credentials: refused for a test (InvalidClientTokenId). Give this machine")
}
