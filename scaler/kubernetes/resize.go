package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io/fs"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/quellhq/quell/limit/pods"
)

// agentManager is the name of agents of nodes among the managers of a pod's fields.
const agentManager = "quell-agent"

var _ pods.Cluster = (*Node)(nil)

// Pod returns a pod of the service on the node. It is not safe for concurrent use, nor are the other methods of pods.Cluster.
func (n *Node) Pod(name string) (pods.Pod, error) {
	pod, err := n.find(n.driver.opts.Namespace + "/" + name)
	if err != nil {
		return pods.Pod{}, err
	}
	p := pods.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Refused: refused(pod)}
	for _, c := range lasting(pod) {
		p.Containers = append(p.Containers, pods.Container{
			Name: c.Name, Request: c.Resources.Requests.Cpu().MilliValue(), Limit: c.Resources.Limits.Cpu().MilliValue(),
		})
	}
	if c := condition(pod, corev1.PodResizePending); c != nil && c.Status == corev1.ConditionTrue {
		p.Pending = strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
	}
	if c := condition(pod, corev1.PodResizeInProgress); c != nil && c.Status == corev1.ConditionTrue {
		p.Changing = true
		if c.Reason == corev1.PodReasonError {
			p.Pending = "Error: " + c.Message
		}
	}
	return p, nil
}

// find returns a running pod, by NAMESPACE/POD, as the watch shows it, or as the last write left it if that is newer.
func (n *Node) find(key string) (*corev1.Pod, error) {
	if !n.pods.informer.HasSynced() {
		return nil, n.pods.problem()
	}
	stored, _, err := n.pods.informer.GetStore().GetByKey(key)
	if err != nil {
		return nil, err
	}
	pod, ok := stored.(*corev1.Pod)
	if !ok || ended(pod) || pod.DeletionTimestamp != nil {
		delete(n.written, key)
		return nil, fmt.Errorf("there is no such pod on the node: %w", fs.ErrNotExist)
	}
	last := n.written[key]
	if last == nil {
		return pod, nil
	}
	if order, err := resourceversion.CompareResourceVersion(last.ResourceVersion, pod.ResourceVersion); err == nil && order > 0 &&
		last.UID == pod.UID {
		return last, nil
	}
	delete(n.written, key)
	return pod, nil
}

// lasting returns the containers that run as long as their pod: its own, and those that start before them and stay.
func lasting(pod *corev1.Pod) []corev1.Container {
	list := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			list = append(list, c)
		}
	}
	return list
}

// refused returns why the processor limits of a pod are not changed, "" if they can be.
func refused(pod *corev1.Pod) string {
	if pod.Status.QOSClass == corev1.PodQOSGuaranteed {
		return "its quality of service is Guaranteed, which its requests and limits make together: Quell does not change requests"
	}
	if r := pod.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		return "it has resources of the whole pod (spec.resources), which Quell does not change"
	}
	for _, c := range lasting(pod) {
		if c.Resources.Limits.Cpu().IsZero() {
			return "container " + c.Name + " has no limit of processors, and one that is added cannot be taken away again: give it one"
		}
		for _, p := range c.ResizePolicy {
			if p.ResourceName == corev1.ResourceCPU && p.RestartPolicy == corev1.RestartContainer {
				return "container " + c.Name + " would be restarted: its resizePolicy says RestartContainer for cpu"
			}
		}
	}
	return ""
}

// container returns a container of a running pod, by NAMESPACE/POD/CONTAINER, and its place in the pod.
func (n *Node) container(path string) (pod *corev1.Pod, c *corev1.Container, at string, err error) {
	i := strings.LastIndex(path, "/")
	if pod, err = n.find(path[:max(i, 0)]); err != nil {
		return nil, nil, "", err
	}
	for list, of := range map[string][]corev1.Container{"containers": pod.Spec.Containers, "initContainers": pod.Spec.InitContainers} {
		for at := range of {
			if of[at].Name == path[i+1:] {
				return pod, &of[at], fmt.Sprintf("/spec/%s/%d", list, at), nil
			}
		}
	}
	return nil, nil, "", fmt.Errorf("its pod has no such container: %w", fs.ErrNotExist)
}

// Limit implements limit.Containers.
func (n *Node) Limit(path string) (millis int64, id uint64, err error) {
	pod, c, _, err := n.container(path)
	if err != nil {
		return 0, 0, err
	}
	digest := fnv.New64a()
	_, _ = digest.Write([]byte(pod.UID))
	return c.Resources.Limits.Cpu().MilliValue(), digest.Sum64(), nil
}

// SetLimit implements limit.Containers.
func (n *Node) SetLimit(path string, from, to int64) error {
	pod, c, at, err := n.container(path)
	if err != nil {
		return err
	}
	now := c.Resources.Limits.Cpu()
	if now.MilliValue() != from {
		return fmt.Errorf("its limit has just become %s: left as it is", now)
	}
	type step struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value"`
	}
	limit := at + "/resources/limits/cpu"
	patch, err := json.Marshal([]step{
		{"test", "/metadata/uid", string(pod.UID)}, {"test", at + "/name", c.Name}, {"test", limit, now.String()},
		{"replace", limit, fmt.Sprintf("%dm", to)},
	})
	if err != nil {
		return err
	}
	return n.patch(pod, patch)
}

// patch changes the resources of a pod in place.
func (n *Node) patch(pod *corev1.Pod, patch []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestWait)
	defer cancel()
	changed := &corev1.Pod{}
	err := n.driver.api.core.Patch(types.JSONPatchType).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("resize").
		VersionedParams(&metav1.PatchOptions{FieldManager: agentManager}, metav1.ParameterCodec).Body(patch).MaxRetries(0).Do(ctx).Into(changed)
	switch {
	case apierrors.IsNotFound(err) && strings.Contains(err.Error(), fmt.Sprintf("%q not found", pod.Name)):
		return fmt.Errorf("the pod has just gone: %w", fs.ErrNotExist)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the API server cannot resize pods in place, which Kubernetes can from version 1.33 on: %w", err)
	case err != nil:
		return fmt.Errorf("resizing the pod: %w", plain(err))
	}
	n.written[pod.Namespace+"/"+pod.Name] = trimResizable(changed)
	return nil
}

// Ours implements limit.Containers: the API server records who changed each field last.
func (n *Node) Ours(path string) bool {
	pod, c, at, err := n.container(path)
	if err != nil {
		return false
	}
	list, key := strings.Split(at, "/")[2], fmt.Sprintf("k:{%q:%q}", "name", c.Name)
	return slices.ContainsFunc(pod.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == agentManager && m.FieldsV1 != nil &&
			owns(m.FieldsV1.GetRawBytes(), "f:spec", "f:"+list, key, "f:resources", "f:limits", "f:cpu")
	})
}

// owns returns whether a set of fields contains one.
func owns(fields []byte, path ...string) bool {
	for _, name := range path {
		var inner map[string]json.RawMessage
		if json.Unmarshal(fields, &inner) != nil || inner[name] == nil {
			return false
		}
		fields = inner[name]
	}
	return true
}

// trimResizable drops what is not used of a pod of the node whose limits may be changed.
func trimResizable(pod *corev1.Pod) *corev1.Pod {
	trimmed := trimmedNodePod(pod)
	trimmed.DeletionTimestamp = pod.DeletionTimestamp
	for _, m := range pod.ManagedFields {
		if m.Manager == agentManager {
			trimmed.ManagedFields = append(trimmed.ManagedFields, m)
		}
	}
	trimmed.Spec = corev1.PodSpec{
		Containers: trimContainers(pod.Spec.Containers), InitContainers: trimContainers(pod.Spec.InitContainers), Resources: pod.Spec.Resources,
	}
	trimmed.Status.QOSClass = pod.Status.QOSClass
	for _, kind := range []corev1.PodConditionType{corev1.PodResizePending, corev1.PodResizeInProgress} {
		if c := condition(pod, kind); c != nil {
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, *c)
		}
	}
	return trimmed
}

func trimContainers(list []corev1.Container) []corev1.Container {
	trimmed := make([]corev1.Container, len(list))
	for i, c := range list {
		trimmed[i] = corev1.Container{Name: c.Name, Resources: c.Resources, ResizePolicy: c.ResizePolicy, RestartPolicy: c.RestartPolicy}
	}
	return trimmed
}
