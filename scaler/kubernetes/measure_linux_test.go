package kubernetes

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quellhq/quell/scaler/kubernetes/controlplane"
)

var measure = flag.Bool("measure", false, "measure what a service of 2,000 pods on 200 nodes costs")

// TestManyPods measures the driver with a service of 2,000 pods on 200 nodes: memory, processor time, and requests at the API server.
func TestManyPods(t *testing.T) {
	if !*measure {
		t.Skip("a measurement, not a test: -measure")
	}
	const nodes, pods, looks = 200, 2000, 60
	r := newBareRig(t, deployments, 0)
	r.fill(nodes, pods)
	r.config = r.apply(manifests(t, r.namespace))
	heap, used, start := heapOf(), processorTime(), time.Now()
	d := r.driver()
	until(t, "all pods are listed", func() bool { members, err := d.Members(t.Context()); return err == nil && len(members) == pods })
	silent(t, d)
	t.Logf("listed within %v, with %v of processor time and %d requests", time.Since(start).Round(time.Millisecond), processorTime()-used,
		r.requests())
	t.Logf("memory: %.1f MB", float64(heapOf()-heap)/1e6)
	used, before := processorTime(), r.requests()
	for range looks {
		if _, err := d.Members(t.Context()); err != nil {
			t.Error(err)
		}
		if err := d.Report(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
	}
	t.Logf("%d looks in %d s: %v of processor time, %d requests", looks, looks, processorTime()-used, r.requests()-before)
}

// fill makes nodes and pods of the service that are ready.
func (r *rig) fill(nodes, pods int) {
	r.t.Helper()
	client := r.plane.Client.Resource(resource("", "pods")).Namespace(r.namespace)
	var group sync.WaitGroup
	work := make(chan int)
	for range 8 {
		group.Go(func() {
			for i := range work {
				if i < nodes {
					r.make(resource("", "nodes"), "", object("v1", "Node", fmt.Sprintf("node-%d", i), nil))
				}
				pod := object("v1", "Pod", fmt.Sprintf("web-%d", i), map[string]any{"spec": map[string]any{
					"nodeName": fmt.Sprintf("node-%d", i%nodes), "containers": []any{map[string]any{"name": "web", "image": "web"}},
				}})
				pod.SetLabels(map[string]string{"app": "web"})
				_, err := client.Create(r.t.Context(), pod, metav1.CreateOptions{})
				if err == nil {
					err = controlplane.SetStatus(r.t.Context(), client, pod.GetName(), corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1",
						Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}})
				}
				if err != nil {
					r.t.Error(err)
				}
			}
		})
	}
	for i := range pods {
		work <- i
	}
	close(work)
	group.Wait()
}

// requests counts those of the controller's service account in the audit log.
func (r *rig) requests() int {
	r.t.Helper()
	text, err := os.ReadFile(r.plane.Audit)
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.Count(string(text), `"username":"system:serviceaccount:`+r.namespace+`:quell"`)
}

func heapOf() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
