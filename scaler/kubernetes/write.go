package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/tick"
)

// manager is the name of Quell among the managers of an object's fields.
const manager = "quell"

func (d *Driver) object() dynamic.ResourceInterface {
	return d.api.objects.Resource(d.opts.Resource).Namespace(d.opts.Namespace)
}

// scale reads the scale subresource.
func (d *Driver) scale(ctx context.Context) (*autoscalingv1.Scale, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	o, err := d.object().Get(ctx, d.opts.Name, metav1.GetOptions{}, "scale")
	if err != nil {
		return nil, fmt.Errorf("reading how %s is scaled: %w", d.words(), plain(err))
	}
	return asScale(o)
}

// selector returns the selector of the target's pods.
func (d *Driver) selector(ctx context.Context) (string, error) {
	scale, err := d.scale(ctx)
	if err == nil && scale.Status.Selector == "" {
		err = fmt.Errorf("%s: its scale subresource names no selector, so its pods are unknown", d.words())
	}
	if err != nil {
		return "", err
	}
	return scale.Status.Selector, nil
}

func asScale(o *unstructured.Unstructured) (*autoscalingv1.Scale, error) {
	scale := &autoscalingv1.Scale{}
	return scale, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, scale)
}

// Start raises the number of replicas. The new pods have no names yet.
func (d *Driver) Start(ctx context.Context, n int) ([]string, error) {
	if n < 0 {
		return nil, fmt.Errorf("starting %d instances: the number is negative", n)
	}
	if n == 0 {
		return nil, nil
	}
	if err := d.barred(); err != nil {
		return nil, err
	}
	scale, err := d.scale(ctx)
	if err != nil {
		return nil, err
	}
	return nil, d.resize(ctx, scale, int(scale.Spec.Replicas)+n)
}

// Stop stops pods by the lowest deletion cost on them and fewer replicas, if their disruption budgets allow that, and the platform would
// stop these and no others. It stops those that are ready one after the other: a budget only tells whether one more may be stopped. A pod
// that has ended is removed. That may take minutes: a pod that gets one of these names meanwhile is left alone.
func (d *Driver) Stop(ctx context.Context, ids []string) error {
	d.stopping.Lock()
	defer d.stopping.Unlock()
	meant := uids{}
	for len(ids) > 0 {
		if !tick.Sleep(ctx, d.settle-time.Since(d.stopped)) {
			return ctx.Err()
		}
		now, later, err := d.stopSome(ctx, ids, meant)
		if err != nil || len(later) == 0 {
			return err
		}
		if err := d.awaitStopped(ctx, now, meant); err != nil {
			return err
		}
		ids = later
	}
	return nil
}

// stopSome stops those whose turn it is, and returns their names, and those of the others.
func (d *Driver) stopSome(ctx context.Context, ids []string, meant uids) (now, later []string, err error) {
	scale, err := d.scale(ctx)
	if err != nil {
		return nil, nil, err
	}
	pods, err := d.list(ctx, scale.Status.Selector)
	if err != nil {
		return nil, nil, err
	}
	c, err := choose(pods, meant.only(pods, ids), int(scale.Spec.Replicas))
	for _, pod := range c.ended {
		err = errors.Join(err, d.evict(ctx, pod, false))
	}
	if err != nil || len(c.chosen) == 0 {
		return nil, nil, err
	}
	if err := d.barred(); err != nil {
		return nil, nil, err
	}
	if now, later = c.turn(); len(later) > 0 {
		if c, err = choose(pods, now, int(scale.Spec.Replicas)); err != nil {
			return nil, nil, err
		}
	}
	if err := d.mark(ctx, c); err != nil || c.fewer == 0 {
		return now, later, err
	}
	d.stopped = time.Now()
	return now, later, d.resize(ctx, scale, int(scale.Spec.Replicas)-c.fewer)
}

// awaitStopped waits until the watch shows that the platform stops these pods. What their budgets still allow is counted after that.
func (d *Driver) awaitStopped(ctx context.Context, names []string, meant uids) error {
	ctx, cancel := context.WithTimeout(ctx, requestWait+d.settle)
	defer cancel()
	for {
		pods, err := d.watched(ctx)
		runs := slices.IndexFunc(pods, func(pod *corev1.Pod) bool {
			return active(pod) && slices.Contains(names, pod.Name) && meant[pod.Name] == pod.UID
		})
		if err == nil && runs < 0 {
			d.stopped = time.Now()
			return nil
		}
		if !tick.Sleep(ctx, 10*time.Millisecond) {
			return fmt.Errorf("the others wait until %s is stopped: fewer replicas of %s were asked for, and it still runs", names[0], d.words())
		}
	}
}

// list reads the pods from the API server itself: what is stopped must not depend on a copy that may be late.
func (d *Driver) list(ctx context.Context, selector string) ([]*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	list := &corev1.PodList{}
	err := d.api.core.Get().Namespace(d.opts.Namespace).Resource("pods").
		VersionedParams(&metav1.ListOptions{LabelSelector: selector}, metav1.ParameterCodec).Do(ctx).Into(list)
	if err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", d.words(), plain(err))
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// mark sets the deletion costs that a choice needs, once the budgets of the chosen pods allow that they are stopped. It returns when the
// watches show the costs, so that the platform's controllers see them, too, before the number of replicas changes.
func (d *Driver) mark(ctx context.Context, c choice) error {
	for _, pod := range c.chosen {
		if !isReady(pod) {
			continue
		}
		if err := d.evict(ctx, pod, true); err != nil {
			return err
		}
	}
	if ownerOf(c.chosen[0]).Kind == "StatefulSet" {
		return nil
	}
	for _, pod := range c.unmark {
		if err := d.setCost(ctx, pod, nil); err != nil {
			return err
		}
	}
	lowest := fmt.Sprint(lowestCost)
	for _, pod := range c.chosen {
		if cost(pod) != lowestCost {
			if err := d.setCost(ctx, pod, &lowest); err != nil {
				return err
			}
		}
	}
	return d.awaitCosts(ctx, c)
}

func (d *Driver) setCost(ctx context.Context, pod *corev1.Pod, value *string) error {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]*string{costName: value},
	}})
	if err != nil {
		return err
	}
	err = d.api.core.Patch(types.MergePatchType).Namespace(d.opts.Namespace).Resource("pods").Name(pod.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: manager}, metav1.ParameterCodec).Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("setting the deletion cost of pod %s: %w", pod.Name, plain(err))
	}
	return nil
}

// awaitCosts waits until the watch shows the costs.
func (d *Driver) awaitCosts(ctx context.Context, c choice) error {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	for {
		shown := 0
		pods, err := d.watched(ctx)
		for _, pod := range pods {
			if cost(pod) != lowestCost || !active(pod) {
				continue
			}
			for _, chosen := range c.chosen {
				if chosen.UID == pod.UID {
					shown++
				}
			}
		}
		if err == nil && shown == len(c.chosen) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the deletion costs of pods of %s were set, and no watch shows them yet", d.words())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// evict removes a pod by the eviction API, which respects disruption budgets. If it is only asked, nothing changes.
func (d *Driver) evict(ctx context.Context, pod *corev1.Pod, ask bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	}
	if ask {
		eviction.DeleteOptions.DryRun = []string{metav1.DryRunAll}
	}
	err := d.api.core.Post().Namespace(d.opts.Namespace).Resource("pods").Name(pod.Name).SubResource("eviction").Body(eviction).
		MaxRetries(0).Do(ctx).Error()
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return nil
	case apierrors.IsTooManyRequests(err):
		return fmt.Errorf("pod %s is not stopped: %w", pod.Name, plain(err))
	}
	return fmt.Errorf("evicting pod %s: %w", pod.Name, plain(err))
}

// mostTries limits how often a write is tried while the platform itself keeps writing the object's status.
const mostTries = 10

// resize sets the number of replicas, unless somebody changed it since it was read: their edit wins, and the next decision begins with it.
func (d *Driver) resize(ctx context.Context, scale *autoscalingv1.Scale, replicas int) error {
	was := scale.Spec.Replicas
	err := d.replace(ctx, scale, replicas)
	for range mostTries {
		if !apierrors.IsConflict(err) {
			break
		}
		if scale, err = d.scale(ctx); err != nil {
			return err
		}
		if scale.Spec.Replicas != was {
			return fmt.Errorf("scaling %s: somebody changed the number from %d to %d meanwhile, and that stands", d.words(), was,
				scale.Spec.Replicas)
		}
		err = d.replace(ctx, scale, replicas)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("scaling %s from %d to %d: %w", d.words(), was, replicas, plain(err))
	if mayHaveWorked(err) {
		return &quell.UnsureError{Err: err}
	}
	return err
}

// replace writes the number by server-side apply, if the object is still the one that was read. A number that a command set before is taken
// over. One that somebody else applies is not.
func (d *Driver) replace(ctx context.Context, scale *autoscalingv1.Scale, replicas int) error {
	err := d.apply(ctx, scale, replicas, false)
	owners := ownersIn(err)
	if len(owners) == 0 {
		return err
	}
	for _, owner := range owners {
		if !strings.Contains(owner, " using ") { // applied, which its owner does again
			return &appliedError{owner}
		}
	}
	return d.apply(ctx, scale, replicas, true)
}

// appliedError says that somebody else declares the number of replicas.
type appliedError struct{ owner string }

func (e *appliedError) Error() string {
	return "spec.replicas is applied by " + e.owner + ", too: leave `replicas` out of what is applied there"
}

func (d *Driver) apply(ctx context.Context, scale *autoscalingv1.Scale, replicas int, force bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	_, err := d.object().Apply(ctx, d.opts.Name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling/v1", "kind": "Scale",
		"metadata": map[string]any{"name": d.opts.Name, "namespace": d.opts.Namespace, "resourceVersion": scale.ResourceVersion},
		"spec":     map[string]any{"replicas": int64(replicas)},
	}}, metav1.ApplyOptions{FieldManager: manager, Force: force}, "scale")
	return err
}

// ownersIn returns who else manages the fields that an apply would have changed.
func ownersIn(err error) (owners []string) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			owners = append(owners, strings.TrimPrefix(cause.Message, "conflict with "))
		}
	}
	return owners
}

// mayHaveWorked returns whether a write may have been carried out although it failed.
func mayHaveWorked(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError
	}
	var op *net.OpError
	if errors.As(err, new(*appliedError)) {
		return false
	}
	return !errors.As(err, &op) || op.Op != "dial"
}
