package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// Pods is the resource of pods.
var Pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// look is how often a Kubelet compares its pods with what they should be.
const look = 100 * time.Millisecond

// Kubelet stands in for scheduler and nodes in one namespace: it binds pods to the node NAMESPACE-node, makes them ready at once, and
// removes those that are being deleted.
type Kubelet struct {
	mu   sync.Mutex
	hold func(*corev1.Pod) bool
}

// Hold sets which pods stay as they are; nil: none.
func (k *Kubelet) Hold(these func(*corev1.Pod) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hold = these
}

// Kubelet starts one for a namespace; it ends with the test.
func (p *Plane) Kubelet(t testing.TB, namespace string) *Kubelet {
	k := &Kubelet{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			k.tend(ctx, p.Client.Resource(Pods).Namespace(namespace))
			select {
			case <-ctx.Done():
			case <-time.After(look):
			}
		}
	}()
	return k
}

// tend looks after all pods once. What fails is tried again with the next look.
func (k *Kubelet) tend(ctx context.Context, pods dynamic.ResourceInterface) {
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range list.Items {
		var pod corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &pod); err == nil {
			k.tendOne(ctx, pods, &pod)
		}
	}
}

func (k *Kubelet) tendOne(ctx context.Context, pods dynamic.ResourceInterface, pod *corev1.Pod) {
	k.mu.Lock()
	held := k.hold != nil && k.hold(pod)
	k.mu.Unlock()
	switch {
	case pod.DeletionTimestamp != nil:
		_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	case held || pod.Status.Phase != corev1.PodPending:
	case pod.Spec.NodeName == "":
		_, _ = pods.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Binding", "metadata": map[string]any{"name": pod.Name},
			"target": map[string]any{"kind": "Node", "name": pod.Namespace + "-node"},
		}}, metav1.CreateOptions{}, "binding")
	default:
		_ = SetStatus(ctx, pods, pod.Name, corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address(pod.UID), PodIPs: []corev1.PodIP{{IP: address(pod.UID)}},
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
			},
		})
	}
}

// address returns an address of its own for each pod, on loopback.
func address(uid types.UID) string {
	var sum uint32
	for _, c := range []byte(uid) {
		sum = sum*31 + uint32(c)
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+sum>>16%250, sum>>8%250, 1+sum%250)
}

// SetStatus changes the status of a pod or a node, as its kubelet does.
func SetStatus(ctx context.Context, objects dynamic.ResourceInterface, name string, status any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = objects.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
