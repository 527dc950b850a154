package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/quellhq/quell/scaler"
)

// examination collects the answers of AWS.
type examination struct {
	*Driver
	user    string // who asks
	answers []scaler.Answer
}

// ask asks for the user, each right to read, and what hinders Quell. AWS cannot be asked for the rights to change a group.
func ask(ctx context.Context, opts Options) []scaler.Answer {
	opts.Now = time.Now
	x := &examination{Driver: &Driver{opts: opts}}
	x.question(ctx, "", "whose credentials", x.whoAmI)
	if x.api == nil || x.user == "" {
		return x.answers
	}
	var p picture
	x.question(ctx, "autoscaling:DescribeAutoScalingGroups", x.words(), func(ctx context.Context) (got string, err error) {
		p.group, err = x.group(ctx)
		return fmt.Sprintf("%d instances, %d desired, %d to %d allowed", len(p.group.Instances), sdk.ToInt32(p.group.DesiredCapacity),
			sdk.ToInt32(p.group.MinSize), sdk.ToInt32(p.group.MaxSize)), err
	})
	x.question(ctx, "ec2:DescribeInstances", "addresses of the instances", func(ctx context.Context) (got string, err error) {
		p.machines, err = x.api.machines(ctx, x.opts.Group)
		return fmt.Sprintf("%d", len(p.machines)), err
	})
	x.question(ctx, "ec2:DescribeSpotInstanceRequests", "notices of spot instances", func(ctx context.Context) (string, error) {
		notices, err := x.askNotices(ctx, p)
		return fmt.Sprintf("%d", len(notices)), err
	})
	x.question(ctx, "autoscaling:DescribeScalingActivities", "what the group did last", func(ctx context.Context) (string, error) {
		a, err := x.lastActivity(ctx)
		if err != nil || a == nil {
			return "nothing", err
		}
		return sdk.ToString(a.Description), nil
	})
	if p.group.AutoScalingGroupName == nil {
		return x.answers
	}
	x.question(ctx, "autoscaling:DescribePolicies", "what else changes the group", func(ctx context.Context) (got string, err error) {
		if p.policies, err = x.askPolicies(ctx); err != nil {
			return "", err
		}
		return x.hindrances(p)
	})
	x.unasked()
	return x.answers
}

// question asks one question. An error names the right that the answer needs, if that is missing.
func (x *examination) question(ctx context.Context, right, asked string, ask func(context.Context) (string, error)) {
	ctx, cancel := context.WithTimeout(ctx, x.opts.limit)
	defer cancel()
	got, err := ask(ctx)
	err = plain(err)
	if isDenied(err) {
		err = fmt.Errorf("%s lacks the right %s: %w", x.user, right, err)
	}
	x.answers = append(x.answers, scaler.Answer{Asked: "AWS: " + asked, Got: got, Err: err})
}

// whoAmI connects, and returns whose credentials they are. No right is needed for that.
func (x *examination) whoAmI(ctx context.Context) (string, error) {
	api, err := connect(ctx, &x.opts)
	if err != nil {
		return "", err
	}
	x.api = api
	out, err := sts.NewFromConfig(api.config).GetCallerIdentity(ctx, nil)
	if err != nil {
		// Not %w: plain would leave out the rest.
		return "", fmt.Errorf("%v. Give this machine a role, or set AWS_PROFILE, as for the AWS CLI", plain(err))
	}
	x.user = sdk.ToString(out.Arn)
	return x.user + " in region " + api.region, nil
}

// hindrances returns what keeps Quell from starting and stopping instances: an error if it is to do that.
func (x *examination) hindrances(p picture) (string, error) {
	err := errors.Join(x.rival(p), suspended(p, "Launch", "Terminate"), inUnits(p))
	if x.opts.advises && err != nil {
		return "before `mode: act`: " + err.Error(), nil
	}
	return "nothing", err
}

// unasked names the rights that only a change would show.
func (x *examination) unasked() {
	if x.opts.advises {
		return
	}
	rights := []string{"autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"}
	if x.opts.Hook != "" {
		rights = append(rights, "autoscaling:CompleteLifecycleAction")
	}
	x.answers = append(x.answers, scaler.Answer{Asked: "AWS: rights to change the group", Got: "not asked, because AWS has no way to do so " +
		"without a change: " + strings.Join(rights, ", ") + " must be in the policy (docs/platforms/aws.md)"})
}
