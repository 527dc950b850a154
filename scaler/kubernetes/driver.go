// Package kubernetes is the scaler for pods: those of a Deployment, a StatefulSet, or anything else with the scale subresource. It keeps
// copies of the target, its pods, horizontal pod autoscalers and nodes by watches, so that reading costs no requests and goes on while the
// API server is away.
//
// Instances are started by more replicas. They are stopped by the lowest deletion cost on their pods, and fewer replicas: then a ReplicaSet
// stops these. A pod's name is its instance's id.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/quellhq/quell"
)

const (
	patience = time.Second      // how long the first answer may take
	creation = 10 * time.Second // how long the first list of pods waits for those that the platform still creates
	counting = time.Second      // how long the platform may take to count what a disruption budget allows
)

// Options say what is scaled and how it is reached.
type Options struct {
	Config          *rest.Config
	Namespace       string
	Resource        schema.GroupVersionResource
	Name            string
	Port, ProbePort int  // in each pod; ProbePort 0: there is no probe server
	Nodes           bool // whether nodes are watched
	Joins           Joining
	Resizes         bool // agents of nodes change the limits of pods
	Advises         bool // Quell only advises: an autoscaler of the same target is no problem until something is to be started or stopped
	Now             func() time.Time
}

// Driver scales the target. It is safe for concurrent use.
type Driver struct {
	opts   Options
	api    clients
	target *mirror // the one object, or none
	hpas   *mirror
	nodes  *mirror       // nil: not watched
	settle time.Duration // how long budgets are left to be counted after a pod was stopped

	stopping sync.Mutex // held while pods are stopped: two would take each other's marks
	stopped  time.Time  // when pods were last stopped; guarded by stopping

	mu     sync.Mutex
	pods   *mirror   // nil: the pods' labels are not known yet
	of     types.UID // of the target whose pods these are
	failed error     // why the pods' labels could not be read
	asked  time.Time // when they were asked for last
	began  time.Time // when the pods were to be listed first
	seen   map[types.UID]sighting
}

// sighting is what is remembered of a pod.
type sighting struct {
	since time.Time // when it was started, or listed first
	ready bool      // it was ready once
}

// New makes a driver and begins to watch. It does not wait for the API server.
func New(opts Options) (*Driver, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	d, err := connected(opts)
	if err != nil {
		return nil, err
	}
	d.target, err = newMirror(d.opts.Resource.Resource, named(d.object(), opts.Name), &unstructured.Unstructured{}, nil)
	if err != nil {
		return nil, err
	}
	d.hpas, err = newMirror("horizontalpodautoscalers", listed(d.api.autoscaling, opts.Namespace, "horizontalpodautoscalers", "",
		func() runtime.Object { return &autoscalingv1.HorizontalPodAutoscalerList{} }), &autoscalingv1.HorizontalPodAutoscaler{}, nil)
	if err == nil && opts.Nodes {
		d.nodes, err = newMirror("nodes", listed(d.api.core, "", "nodes", "",
			func() runtime.Object { return &corev1.NodeList{} }), &corev1.Node{}, trimNode)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// connected makes a driver that watches nothing.
func connected(opts Options) (*Driver, error) {
	api, err := connect(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("scaler: a client of Kubernetes: %w", err)
	}
	return &Driver{opts: opts, api: api, settle: counting}, nil
}

// Close ends the watches. The pods run on.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range []*mirror{d.target, d.hpas, d.nodes, d.pods} {
		if m != nil {
			m.stop()
		}
	}
	return nil
}

// words names the target in messages.
func (d *Driver) words() string {
	return fmt.Sprintf("%s %s in namespace %s", d.opts.Resource.Resource, d.opts.Name, d.opts.Namespace)
}

// found returns the target as it was seen last, nil if there is none.
func (d *Driver) found() *unstructured.Unstructured {
	if list := objectsOf[*unstructured.Unstructured](d.target); len(list) > 0 {
		return list[0]
	}
	return nil
}

// Members lists the pods of the target. While the API server is away, they are those that were seen last, and Report says so. There is an
// error only if no pods were listed yet.
func (d *Driver) Members(ctx context.Context) ([]quell.Member, error) {
	pods, err := d.watched(ctx)
	if err != nil {
		return nil, err
	}
	machines := d.machineTypes()
	now := d.opts.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.uncreated(pods, now); err != nil {
		return nil, err
	}
	first, known := d.seen == nil, d.seen
	d.seen = make(map[types.UID]sighting, len(pods))
	members := make([]quell.Member, 0, len(pods))
	for _, pod := range pods {
		s, old := known[pod.UID]
		if !old {
			// Other machines' clocks are only believed for what was there before.
			if s.since = now; first && pod.CreationTimestamp.Time.Before(now) {
				s.since = pod.CreationTimestamp.Time
			}
		}
		state := stateOf(pod, s.ready)
		s.ready = s.ready || state == quell.Ready
		d.seen[pod.UID] = s
		members = append(members, quell.Member{
			ID: pod.Name, UID: string(pod.UID), Type: machines[pod.Spec.NodeName], State: state, Started: s.since,
			Address: addressOf(pod, d.opts.Port), Probe: addressOf(pod, d.opts.ProbePort),
		})
	}
	slices.SortFunc(members, func(a, b quell.Member) int { return cmp.Compare(a.ID, b.ID) })
	return members, nil
}

// uncreated returns an error while the platform has not created all pods that it is to run, if none were listed yet: those that are not
// there would be started once more. It gives up after a while, because a quota may hinder the platform. The caller holds mu.
func (d *Driver) uncreated(pods []*corev1.Pod, now time.Time) error {
	target := d.found()
	if d.seen != nil || target == nil {
		return nil
	}
	if d.began.IsZero() {
		d.began = now
	}
	there := 0
	for _, pod := range pods {
		if active(pod) {
			there++
		}
	}
	// Other kinds may have the number elsewhere.
	wanted, _, _ := unstructured.NestedInt64(target.Object, "spec", "replicas")
	if int64(there) >= wanted || now.Sub(d.began).Abs() >= creation {
		return nil
	}
	return fmt.Errorf("pods of %s: %d of %d are created so far", d.words(), there, wanted)
}

// watched returns the pods as they were seen last. Before they were seen once, it waits for them, but not for long.
func (d *Driver) watched(ctx context.Context) ([]*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		m, err := d.follow(ctx)
		if m != nil && m.informer.HasSynced() {
			return objectsOf[*corev1.Pod](m), nil
		}
		if m != nil {
			err = m.problem()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("pods of %s: %w", d.words(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// follow returns the copy of the pods' list. It begins one when the target is seen first, and again when another one has taken its place.
func (d *Driver) follow(ctx context.Context) (*mirror, error) {
	target := d.found()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case target == nil && d.pods == nil:
		if err := d.target.problem(); err != nil {
			return nil, err
		}
		return nil, errors.New("there is no such object")
	case target == nil || d.pods != nil && d.of == target.GetUID():
		return d.pods, nil
	case d.failed != nil && d.opts.Now().Sub(d.asked).Abs() < patience:
		return d.pods, d.failed
	}
	d.asked = d.opts.Now()
	var selector string
	if selector, d.failed = d.selector(ctx); d.failed != nil {
		return d.pods, d.failed
	}
	m, err := newMirror("pods", listed(d.api.core, d.opts.Namespace, "pods", selector,
		func() runtime.Object { return &corev1.PodList{} }), &corev1.Pod{}, trimPod)
	if err != nil {
		return nil, err
	}
	if d.pods != nil {
		d.pods.stop()
	}
	d.pods, d.of = m, target.GetUID()
	return m, nil
}
