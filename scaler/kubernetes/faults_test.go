package kubernetes

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scaler/kubernetes/controlplane"
)

// says checks that an error contains all parts.
func says(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s = %v; %q is missing", what, err, part)
		}
	}
}

// reported waits until Report says all parts.
func reported(t *testing.T, d *Driver, parts ...string) {
	t.Helper()
	until(t, "Report says "+strings.Join(parts, ", "), func() bool {
		err := d.Report()
		return err != nil && !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(err.Error(), p) })
	})
}

// silent waits until Report says nothing.
func silent(t *testing.T, d *Driver) {
	t.Helper()
	until(t, "Report says nothing", func() bool { return d.Report() == nil })
}

func (r *rig) status(pod string, status corev1.PodStatus) {
	r.t.Helper()
	pods := r.plane.Client.Resource(controlplane.Pods).Namespace(r.namespace)
	if err := controlplane.SetStatus(r.t.Context(), pods, pod, status); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) remove(resource schema.GroupVersionResource, name string) {
	r.t.Helper()
	if err := r.plane.Client.Resource(resource).Namespace(r.namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

var (
	hpas     = schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	budgets  = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	quotas   = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}
	nodes    = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	accounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
)

// TestOthersScaleToo checks that Quell keeps its hands off a group that an autoscaler, a person's pause, or a declaration rules.
func TestOthersScaleToo(t *testing.T) {
	t.Parallel()
	r := newRig(t, deployments, 2)
	d := r.driver()
	ids := ready(t, d, 2)
	r.make(hpas, r.namespace, object("autoscaling/v2", "HorizontalPodAutoscaler", "auto", map[string]any{"spec": map[string]any{
		"maxReplicas": int64(5), "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
	}}))
	reported(t, d, "the horizontal pod autoscaler auto scales deployments web", "kubectl delete -n "+r.namespace+" hpa auto")
	_, err := d.Start(t.Context(), 1)
	says(t, "Start", err, "hpa auto")
	says(t, "Stop", d.Stop(t.Context(), ids[:1]), "hpa auto")
	r.remove(hpas, "auto")
	silent(t, d)

	r.patch(`{"metadata":{"annotations":{"quell/paused":"true"}}}`)
	until(t, "the pause is seen", func() bool { return d.barred() != nil })
	_, err = d.Start(t.Context(), 1)
	says(t, "Start", err, "quell/paused=true", "kubectl annotate")
	r.patch(`{"metadata":{"annotations":{"quell/paused":null}}}`)
	until(t, "the pause has ended", func() bool { return d.barred() == nil })

	// What a command set is taken over, and a change that was made since the last look stands.
	r.patch(`{"spec":{"replicas":3}}`, "scale")
	ready(t, d, 3)
	if _, err := d.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	ready(t, d, 4)
	old, err := d.scale(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.patch(`{"spec":{"replicas":5}}`)
	err = d.resize(t.Context(), old, 7)
	says(t, "resize", err, "somebody changed the number from 4 to 5 meanwhile")
	if n := r.replicas(); n != 5 {
		t.Errorf("replicas = %d, want the person's 5", n)
	}
	// What somebody declares would come back.
	_, err = r.plane.Client.Resource(r.resource).Namespace(r.namespace).Apply(t.Context(), "web",
		object("apps/v1", "Deployment", "web", map[string]any{"spec": map[string]any{"replicas": int64(6)}}),
		metav1.ApplyOptions{FieldManager: "flux", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Start(t.Context(), 1)
	says(t, "Start", err, `"flux"`, "leave `replicas` out")
}

// TestPodsThatDoNotRun checks what is said of pods, quotas and nodes, and their states.
func TestPodsThatDoNotRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, deployments, 1)
	d := r.driver()
	first := ready(t, d, 1)[0]
	r.kubelet.Hold(func(pod *corev1.Pod) bool { return pod.Name != first })
	if _, err := d.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	var second string
	until(t, "the second pod is listed", func() bool {
		members, _ := d.Members(t.Context())
		for _, m := range members {
			if m.ID != first && m.State == quell.Starting {
				second = m.ID
			}
		}
		return second != ""
	})
	words := "0/3 nodes are available: 3 Insufficient cpu."
	r.status(second, corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: words},
	}})
	reported(t, d, "pod "+second+" cannot be scheduled: "+words)
	// A ReplicaSet stops pods that are not ready first, whatever their cost.
	says(t, "Stop", d.Stop(t.Context(), []string{first}), second+" is not ready", "stopped when all others are ready")
	stop(t, d, []string{second})
	ready(t, d, 1)
	silent(t, d)

	r.status(first, corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "web", Image: "web", RestartCount: 7, State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m0s"},
		}}},
	})
	reported(t, d, "container web: CrashLoopBackOff: back-off 5m0s (restarted 7 times)")
	if members, err := d.Members(t.Context()); err != nil || members[0].State != quell.Failed {
		t.Errorf("members = %+v, %v; one that was ready and is not has failed", members, err)
	}

	node := object("v1", "Node", r.namespace+"-node", map[string]any{
		"metadata": map[string]any{"name": r.namespace + "-node", "labels": map[string]any{corev1.LabelInstanceTypeStable: "m7.large"}},
	})
	r.make(nodes, "", node)
	pressure := corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue, Message: "little memory is left"}
	err := controlplane.SetStatus(t.Context(), r.plane.Client.Resource(nodes), node.GetName(),
		corev1.NodeStatus{Conditions: []corev1.NodeCondition{pressure}})
	if err != nil {
		t.Fatal(err)
	}
	reported(t, d, "node "+node.GetName()+" has MemoryPressure: little memory is left")
	if members, err := d.Members(t.Context()); err != nil || members[0].Type != "m7.large" {
		t.Errorf("members = %+v, %v", members, err)
	}

	r.make(quotas, r.namespace, object("v1", "ResourceQuota", "few", map[string]any{
		"spec": map[string]any{"hard": map[string]any{"pods": "1"}},
	}))
	full := map[string]any{"hard": map[string]any{"pods": "1"}, "used": map[string]any{"pods": "1"}}
	if err := controlplane.SetStatus(t.Context(), r.plane.Client.Resource(quotas).Namespace(r.namespace), "few", full); err != nil {
		t.Fatal(err)
	}
	until(t, "the quota is full", func() bool { // the server may notice it late
		if members, err := d.Members(t.Context()); err == nil && len(members) == r.replicas() {
			if _, err := d.Start(t.Context(), 1); err != nil {
				t.Error(err)
			}
		}
		err := d.Report()
		return err != nil && strings.Contains(err.Error(), "pods cannot be made") && strings.Contains(err.Error(), "quota: few")
	})
}

// TestBudget checks that no pod is stopped while its disruption budget forbids that.
func TestBudget(t *testing.T) {
	t.Parallel()
	r := newRig(t, deployments, 2)
	d := r.driver()
	ids := ready(t, d, 2)
	r.make(budgets, r.namespace, object("policy/v1", "PodDisruptionBudget", "web", map[string]any{"spec": map[string]any{
		"minAvailable": int64(2), "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
	}}))
	until(t, "the budget is counted", func() bool {
		o, err := r.plane.Client.Resource(budgets).Namespace(r.namespace).Get(t.Context(), "web", metav1.GetOptions{})
		healthy, _, _ := unstructured.NestedInt64(o.Object, "status", "currentHealthy")
		return err == nil && healthy == 2
	})
	says(t, "Stop", d.Stop(t.Context(), ids[:1]), "disruption budget web needs 2 healthy pods and has 2")
	if _, err := d.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	three := ready(t, d, 3)
	stop(t, d, ids[:1])
	checkOnly(t, three, ids[:1], ready(t, d, 2))
	// Of several that are stopped together, as many as the budget allows.
	if _, err := d.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	three = ready(t, d, 3)
	until(t, "one may be stopped", func() bool {
		o, err := r.plane.Client.Resource(budgets).Namespace(r.namespace).Get(t.Context(), "web", metav1.GetOptions{})
		allowed, _, _ := unstructured.NestedInt64(o.Object, "status", "disruptionsAllowed")
		return err == nil && allowed == 1
	})
	says(t, "Stop", d.Stop(t.Context(), three[:2]), "disruption budget web needs 2 healthy pods and has 2")
	ready(t, d, 2)
	if n := r.replicas(); n != 2 {
		t.Errorf("replicas = %d", n)
	}
}

// TestStatefulSet checks that only the highest ordinals are stopped.
func TestStatefulSet(t *testing.T) {
	t.Parallel()
	r := newRig(t, statefulsets, 3)
	d := r.driver()
	ready(t, d, 3)
	says(t, "Stop", d.Stop(t.Context(), []string{"web-0"}), "can only lose its highest ordinals", "web-0 cannot be stopped while web-")
	stop(t, d, []string{"web-1", "web-2"})
	left := ready(t, d, 1)
	if left[0] != "web-0" {
		t.Errorf("left: %v", left)
	}
	if err := d.awaitStopped(t.Context(), left, uids{"web-0": "of a pod that is gone"}); err != nil {
		t.Errorf("another pod has the name of one that is stopped: %v", err)
	}
}

// TestServerIsAway checks that nothing is forgotten while the API server does not answer.
func TestServerIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, deployments, 2)
	c := &cable{}
	r.config = rest.CopyConfig(r.plane.Config)
	r.config.Dial = c.dial
	d := r.driver()
	ids := ready(t, d, 2)
	c.set(true)
	reported(t, d, "watching pods", "the cable is cut")
	if members, err := d.Members(t.Context()); err != nil || !slices.Equal(quell.IDs(members), ids) {
		t.Errorf("members = %v, %v; want %v", members, err, ids)
	}
	_, err := d.Start(t.Context(), 1)
	says(t, "Start", err, "the cable is cut")
	says(t, "Stop", d.Stop(t.Context(), ids[:1]), "the cable is cut")
	other := r.driver()
	if _, err := other.Members(t.Context()); err == nil {
		t.Error("a driver that never saw the pods lists some")
	}
	c.set(false)
	silent(t, d)
	if _, err := d.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	ready(t, d, 3)
}

// TestNoSuchTarget checks what is said if the target or its namespace is gone.
func TestNoSuchTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t, deployments, 1)
	d := r.driver()
	ready(t, d, 1)
	r.remove(deployments, "web")
	reported(t, d, "deployments web in namespace "+r.namespace+": there is no such object")
	_, err := d.Start(t.Context(), 1)
	says(t, "Start", err, "not found")
	r.namespace = "nowhere"
	if _, err := r.driver().Members(t.Context()); err == nil {
		t.Error("a target that does not exist has members")
	}
}
