package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Paused is the annotation on the target that keeps Quell from starting and stopping its pods. Its value is "true".
const Paused = "quell/paused"

// mostNamed limits how many pods or nodes one message names.
const mostNamed = 3

// Report returns everything about the target that a person should know, nil if all is well.
func (d *Driver) Report() error {
	errs := []error{d.stale(), d.incomplete()}
	if !d.opts.Advises {
		errs = append(errs, d.rival())
	}
	d.mu.Lock()
	pods := d.pods
	d.mu.Unlock()
	if pods != nil {
		list := objectsOf[*corev1.Pod](pods)
		slices.SortFunc(list, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		errs = append(errs, d.troubled(list), d.pressed(list))
	}
	return errors.Join(errs...)
}

// stale returns why what is known may be out of date.
func (d *Driver) stale() error {
	var errs []error
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range []*mirror{d.target, d.pods, d.hpas, d.nodes} {
		if m != nil {
			errs = append(errs, m.problem())
		}
	}
	if d.target.problem() == nil && d.found() == nil {
		errs = append(errs, fmt.Errorf("%s: there is no such object", d.words()))
	}
	return errors.Join(append(errs, d.failed)...)
}

// barred returns why nothing may be started or stopped now.
func (d *Driver) barred() error {
	if err := errors.Join(d.hpas.problem(), d.target.problem()); err != nil {
		return fmt.Errorf("nothing is started or stopped: whether an autoscaler has the same target is unknown: %w", err)
	}
	if err := d.rival(); err != nil {
		return err
	}
	if target := d.found(); target != nil && target.GetAnnotations()[Paused] == "true" {
		return fmt.Errorf("nothing is started or stopped: %s has the annotation %s=true. It ends with `kubectl annotate -n %s %s/%s %s-`",
			d.words(), Paused, d.opts.Namespace, d.opts.Resource.Resource, d.opts.Name, Paused)
	}
	return nil
}

// rival returns an error that names an autoscaler of the same target.
func (d *Driver) rival() error {
	target := d.found()
	if target == nil {
		return nil
	}
	for _, hpa := range objectsOf[*autoscalingv1.HorizontalPodAutoscaler](d.hpas) {
		if targets(hpa, target) {
			return d.shared(hpa)
		}
	}
	return nil
}

// shared says that an autoscaler has the same target.
func (d *Driver) shared(hpa *autoscalingv1.HorizontalPodAutoscaler) error {
	kind, name := "hpa", hpa.Name
	if owner := metav1.GetControllerOf(hpa); owner != nil {
		kind, name = strings.ToLower(owner.Kind), owner.Name // as KEDA's ScaledObject, which would make the autoscaler again
	}
	return fmt.Errorf("nothing is started or stopped: the horizontal pod autoscaler %s scales %s, too, and the two would undo each other's "+
		"work. Remove it with `kubectl delete -n %s %s %s`, or use `mode: advise`", hpa.Name, d.words(), d.opts.Namespace, kind, name)
}

func targets(hpa *autoscalingv1.HorizontalPodAutoscaler, target *unstructured.Unstructured) bool {
	ref := hpa.Spec.ScaleTargetRef
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && version.Group == target.GroupVersionKind().Group && ref.Kind == target.GetKind() && ref.Name == target.GetName()
}

// incomplete returns why the platform does not make pods, as with a quota that is full.
func (d *Driver) incomplete() error {
	target := d.found()
	if target == nil {
		return nil
	}
	conditions, _, err := unstructured.NestedSlice(target.Object, "status", "conditions")
	if err != nil {
		return nil // a kind whose status has another form
	}
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "ReplicaFailure" && c["status"] == "True" {
			return fmt.Errorf("%s: pods cannot be made: %v", d.words(), c["message"])
		}
	}
	return nil
}

// troubled returns what is wrong with pods.
func (d *Driver) troubled(pods []*corev1.Pod) error {
	var texts []string
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		if problem := problemOf(pod); problem != "" {
			texts = append(texts, fmt.Sprintf("pod %s %s", pod.Name, problem))
		}
	}
	return some(texts)
}

// pressed returns which nodes with pods of the target are short of something.
func (d *Driver) pressed(pods []*corev1.Pod) error {
	if d.nodes == nil {
		return nil
	}
	ours := map[string]bool{}
	for _, pod := range pods {
		ours[pod.Spec.NodeName] = true
	}
	var texts []string
	for _, node := range objectsOf[*corev1.Node](d.nodes) {
		for _, c := range node.Status.Conditions {
			pressure := c.Type == corev1.NodeMemoryPressure || c.Type == corev1.NodeDiskPressure || c.Type == corev1.NodePIDPressure
			switch {
			case !ours[node.Name]:
			case pressure && c.Status == corev1.ConditionTrue:
				texts = append(texts, fmt.Sprintf("node %s has %s: %s", node.Name, c.Type, c.Message))
			case c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue:
				texts = append(texts, fmt.Sprintf("node %s is not ready: %s", node.Name, c.Message))
			}
		}
	}
	slices.Sort(texts)
	return some(texts)
}

func some(texts []string) error {
	if len(texts) == 0 {
		return nil
	}
	more := ""
	if n := len(texts) - mostNamed; n > 0 {
		texts, more = texts[:mostNamed], fmt.Sprintf("; and %d more", n)
	}
	return errors.New(strings.Join(texts, "; ") + more)
}

// trimNode drops what is not used of a node.
func trimNode(o any) (any, error) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
			Labels: map[string]string{corev1.LabelInstanceTypeStable: node.Labels[corev1.LabelInstanceTypeStable]},
		},
		Status: corev1.NodeStatus{Conditions: node.Status.Conditions},
	}, nil
}

// machineTypes returns the type of each node's machine.
func (d *Driver) machineTypes() map[string]string {
	types := map[string]string{}
	if d.nodes == nil {
		return types
	}
	for _, node := range objectsOf[*corev1.Node](d.nodes) {
		types[node.Name] = node.Labels[corev1.LabelInstanceTypeStable]
	}
	return types
}

// plain is an error of the API server in words. It names the verb that a role lacks, and the budget that forbids an eviction.
func plain(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}
	s := status.Status()
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(s.Message, " cannot "): // other reasons are told by their words
		return fmt.Errorf("%w. The rights that are needed are in docs/platforms/kubernetes.md#rights", err)
	case apierrors.IsTooManyRequests(err) && s.Details != nil && len(s.Details.Causes) > 0:
		return errors.New(s.Message + " " + s.Details.Causes[0].Message)
	}
	return err
}
