package aws

import (
	"errors"
	"fmt"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/smithy-go"
)

// Report returns everything about the group that a person should know, nil if all is well.
func (d *Driver) Report() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := []error{d.errs.look, d.now.policiesErr, d.errs.notices, d.errs.launch, d.errs.hook}
	if !d.opts.advises { // else others may scale the group
		errs = append(errs, d.rival(d.now), suspended(d.now, "Launch", "Terminate"), inUnits(d.now))
	}
	return errors.Join(errs...)
}

// rival returns an error that names scaling policies of AWS which change the same group.
func (d *Driver) rival(p picture) error {
	if d.opts.BesidePolicies {
		return nil
	}
	if p.policiesErr != nil && p.policies == nil {
		return fmt.Errorf("whether a scaling policy changes %s is unknown: %w", d.words(), p.policiesErr)
	}
	alarms := true
	for _, s := range p.group.SuspendedProcesses {
		alarms = alarms && sdk.ToString(s.ProcessName) != "AlarmNotification"
	}
	var names []string
	for i := range p.policies {
		if name := sdk.ToString(p.policies[i].PolicyName); acts(&p.policies[i], alarms) {
			names = append(names, fmt.Sprintf("%s (%s)", name, sdk.ToString(p.policies[i].PolicyType)))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("scaling policies change %s, too, and would undo what Quell does: %s. Remove them with `aws autoscaling delete-policy "+
		"--auto-scaling-group-name %s --policy-name NAME`, or use `mode: advise`; scaler.beside_policies: true makes Quell act all the same",
		d.words(), strings.Join(names, ", "), d.opts.Group)
}

// acts returns whether a policy changes the group. Those that wait for alarms do not while these are suspended.
func acts(p *types.ScalingPolicy, alarms bool) bool {
	switch {
	case p.Enabled != nil && !*p.Enabled:
		return false
	case sdk.ToString(p.PolicyType) == "PredictiveScaling":
		c := p.PredictiveScalingConfiguration
		return c != nil && c.Mode == types.PredictiveScalingModeForecastAndScale
	}
	return alarms
}

// suspended returns an error if one of these processes of the group is suspended.
func suspended(p picture, processes ...string) error {
	var errs []error
	for _, s := range p.group.SuspendedProcesses {
		for _, name := range processes {
			if sdk.ToString(s.ProcessName) == name {
				errs = append(errs, fmt.Errorf("the process %s is suspended (%s). It goes on with `aws autoscaling resume-processes "+
					"--auto-scaling-group-name %s --scaling-processes %s`", name, sdk.ToString(s.SuspensionReason),
					sdk.ToString(p.group.AutoScalingGroupName), name))
			}
		}
	}
	return errors.Join(errs...)
}

// inUnits returns an error if the group's capacity is not a number of instances.
func inUnits(p picture) error {
	kind := sdk.ToString(p.group.DesiredCapacityType)
	weighted := kind != "" && kind != "units"
	for i := range p.group.Instances {
		w := sdk.ToString(p.group.Instances[i].WeightedCapacity)
		weighted = weighted || w != "" && w != "1"
	}
	if weighted {
		return errors.New("the group's capacity is not a number of instances (instance weights, or --desired-capacity-type): Quell can only " +
			"advise on such a group")
	}
	return nil
}

// plain is an error of AWS in words, without the SDK's own. It names the right that a role lacks.
func plain(err error) error {
	var api smithy.APIError
	switch {
	case err == nil || !errors.As(err, &api):
		return err
	case isThrottled(err):
		return &refused{api, "AWS refuses requests because there are too many in this account (" + api.ErrorCode() +
			"): the time between them is lengthened; a longer scaler.every helps"}
	case isDenied(err):
		return &refused{api, strings.TrimSuffix(api.ErrorMessage(), ".") + ". The rights that are needed are in docs/platforms/aws.md"}
	}
	return &refused{api, api.ErrorMessage() + " (" + api.ErrorCode() + ")"}
}

// isDenied returns whether AWS refused because a right is missing.
func isDenied(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && (strings.HasPrefix(api.ErrorCode(), "AccessDenied") || api.ErrorCode() == "UnauthorizedOperation")
}

// refused is an error of AWS with a text of Quell's.
type refused struct {
	api  smithy.APIError
	text string
}

func (e *refused) Error() string { return e.text }
func (e *refused) Unwrap() error { return e.api }
