package kubernetes

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quellhq/quell"
)

// costName is the annotation by which a ReplicaSet chooses which of its pods it stops: those with the lowest cost.
const costName = corev1.PodDeletionCost

// lowestCost is the cost of pods that are to be stopped.
const lowestCost = math.MinInt32

// trimPod drops what is not used of a pod: there may be thousands.
func trimPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, OwnerReferences: pod.OwnerReferences,
			Annotations: only(pod.Annotations, costName),
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, Conditions: pod.Status.Conditions,
			ContainerStatuses: pod.Status.ContainerStatuses, InitContainerStatuses: pod.Status.InitContainerStatuses,
			Reason: pod.Status.Reason, Message: pod.Status.Message,
		},
	}, nil
}

func only(annotations map[string]string, name string) map[string]string {
	if v, ok := annotations[name]; ok {
		return map[string]string{name: v}
	}
	return nil
}

// ended returns whether a pod will never run again.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// active returns whether a pod counts as one of the replicas.
func active(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && !ended(pod) }

// condition returns a condition of a pod, nil if it has none of that type.
func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

func isReady(pod *corev1.Pod) bool {
	c := condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue && pod.Status.PodIP != ""
}

// stateOf returns the state of a pod. was says whether it was ready before: then one that is not ready any more has failed, as an instance
// whose health check fails has.
func stateOf(pod *corev1.Pod, was bool) quell.State {
	switch {
	case pod.DeletionTimestamp != nil:
		return quell.Draining
	case ended(pod):
		return quell.Failed
	case isReady(pod):
		return quell.Ready
	case was:
		return quell.Failed
	}
	return quell.Starting
}

// addressOf returns a port of a pod, "" if the pod has no address yet.
func addressOf(pod *corev1.Pod, port int) string {
	if pod.Status.PodIP == "" || port == 0 {
		return ""
	}
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port))
}

// problemOf returns why a pod does not run as it should, "" if nothing says so.
func problemOf(pod *corev1.Pod) string {
	if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
		return "cannot be scheduled: " + c.Message
	}
	if ended(pod) {
		return strings.TrimSuffix(fmt.Sprintf("has ended: %s %s", cmp.Or(pod.Status.Reason, string(pod.Status.Phase)), pod.Status.Message), " ")
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		w := c.State.Waiting
		if w == nil || w.Reason == "PodInitializing" || w.Reason == "ContainerCreating" {
			continue
		}
		text := fmt.Sprintf("waits: container %s: %s", c.Name, w.Reason)
		if w.Message != "" {
			text += ": " + w.Message
		}
		if c.RestartCount > 0 {
			text += fmt.Sprintf(" (restarted %d times)", c.RestartCount)
		}
		return text
	}
	return ""
}

// ownerOf returns the controller of a pod: its ReplicaSet or StatefulSet. The zero value means that it has none.
func ownerOf(pod *corev1.Pod) metav1.OwnerReference {
	if o := metav1.GetControllerOf(pod); o != nil {
		return *o
	}
	return metav1.OwnerReference{}
}

// rank orders pods as a ReplicaSet does before it compares their cost: what has the lower rank is stopped first.
func rank(pod *corev1.Pod) int {
	phase := map[corev1.PodPhase]int{corev1.PodPending: 0, corev1.PodUnknown: 1, corev1.PodRunning: 2}[pod.Status.Phase]
	n := 2 * phase
	if pod.Spec.NodeName != "" {
		n += 10
	}
	if c := condition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		n++
	}
	return n
}

// cost returns the deletion cost of a pod.
func cost(pod *corev1.Pod) int {
	n, err := strconv.ParseInt(pod.Annotations[costName], 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

// ordinal returns the number of a StatefulSet's pod.
func ordinal(pod *corev1.Pod) int {
	n, err := strconv.Atoi(pod.Name[strings.LastIndex(pod.Name, "-")+1:])
	if err != nil {
		return 0
	}
	return n
}
