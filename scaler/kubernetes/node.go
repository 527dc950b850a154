package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// NodePod is a pod that runs on a node.
type NodePod struct {
	Namespace, Name, UID string
	Member               bool // it is one of the target's: an instance of the service
}

// Node watches the pods of all namespaces on one node, for an agent that reports for the target's pods there.
type Node struct {
	driver *Driver // only for its connection and the target's name
	pods   *mirror

	written map[string]*corev1.Pod // as the last change of their limits left them, by NAMESPACE/POD

	mu       sync.Mutex
	selector labels.Selector // of the target's pods; nil: not known yet
	asked    time.Time
	failed   error
}

// reask is how long the target's selector counts as known.
const reask = time.Minute

// WatchNode begins to watch. It does not wait for the API server.
func (s *Settings) WatchNode(name string) (*Node, error) {
	opts, err := s.options()
	if err != nil {
		return nil, err
	}
	d, err := connected(opts)
	if err != nil {
		return nil, err
	}
	n := &Node{driver: d, written: map[string]*corev1.Pod{}}
	there := fields.OneTermEqualSelector("spec.nodeName", name).String()
	n.pods, err = newMirror("pods of node "+name, chosen(d.api.core, "", "pods", "", there,
		func() runtime.Object { return &corev1.PodList{} }), &corev1.Pod{}, func(o any) (any, error) {
		switch pod, ok := o.(*corev1.Pod); {
		case !ok:
			return o, nil
		case s.Resize:
			return trimResizable(pod), nil
		default:
			return trimmedNodePod(pod), nil
		}
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// Close ends the watch.
func (n *Node) Close() { n.pods.stop() }

// trimmedNodePod is what is used of a pod of the node.
func trimmedNodePod(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
}

// Pods returns the pods that run on the node, as they were seen last, sorted, and why that may be out of date. While nothing is known there
// are none.
func (n *Node) Pods(ctx context.Context) ([]NodePod, error) {
	selector, err := n.members(ctx)
	var pods []NodePod
	for _, pod := range objectsOf[*corev1.Pod](n.pods) {
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		pods = append(pods, NodePod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
			Member: selector != nil && pod.Namespace == n.driver.opts.Namespace && selector.Matches(labels.Set(pod.Labels))})
	}
	slices.SortFunc(pods, func(a, b NodePod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods, errors.Join(n.pods.problem(), err)
}

// members returns the selector of the target's pods, from its scale subresource.
func (n *Node) members(ctx context.Context) (labels.Selector, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wait := reask
	if n.selector == nil {
		wait = patience
	}
	now := time.Now()
	if !n.asked.IsZero() && now.Sub(n.asked).Abs() < wait {
		return n.selector, n.failed
	}
	n.asked = now
	selector, err := n.driver.selector(ctx)
	if err == nil {
		n.selector, err = labels.Parse(selector)
	}
	n.failed = err
	return n.selector, err
}
