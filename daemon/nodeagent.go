package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agent"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/scaler/kubernetes"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/sensor/pods"
)

// nodeLook is how often an agent of a node looks for pods that came or went.
const nodeLook = time.Second

// nodeAgent reports for all pods of the service on one node of Kubernetes.
type nodeAgent struct {
	file *config.File
	node *kubernetes.Node
	log  *slog.Logger

	mu     sync.Mutex // guards the sensors, which several pods use
	sensor *pods.Node
	last   time.Time
	latest map[string]quell.Observation // by uid
	failed []sensor.Failure
}

// NodeAgent reports readings of the service's pods on a node, each in the pod's name, until ctx ends. The pods need no agent of their own:
// their processor time, throttling, waiting and pressure are read from their control groups.
func NodeAgent(ctx context.Context, path, node string, log *slog.Logger) error {
	file, err := Drivers().Load(path)
	if err != nil {
		return err
	}
	settings, ok := file.Scaler.Settings.(*kubernetes.Settings)
	if !ok {
		return &quell.UserError{Err: fmt.Errorf("%s: --node is for pods, and needs scaler.kind: kubernetes", path)}
	}
	if err := checkWeb(file); err != nil {
		return err
	}
	a := &nodeAgent{file: file, log: log}
	if a.sensor, err = pods.NewNode(os.DirFS(file.Agent.Root)); err != nil {
		return err
	}
	if a.node, err = settings.WatchNode(node); err != nil {
		return err
	}
	defer a.node.Close()
	manager := serviceManager{log, newSelf()}
	shut, err := ServeHTTP("the agent's metrics", file.Agent.Metrics, file.Web, agentHandler(manager.self.registry, a.known), log)
	if err != nil {
		return err
	}
	defer shut()
	own, err := a.policy(node, settings.Resize, manager.self.registry)
	if err != nil {
		return err
	}
	log.Info("agent started", "service", file.Service.Name, "node", node, "bus", busOf(file))
	manager.ready()
	defer manager.stopping(stopWait)
	if !settings.Resize {
		a.follow(ctx)
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	decided := make(chan error)
	go func() { decided <- own.run(ctx) }()
	a.follow(ctx)
	stop()
	return <-decided
}

// known returns why the pods of the node are not known, nil if they are.
func (a *nodeAgent) known() error {
	_, err := a.node.Pods(context.Background())
	return err
}

// follow reports for each pod of the service as long as it is on the node.
func (a *nodeAgent) follow(ctx context.Context) {
	looking := outage.Log{Logger: a.log, What: "looking for pods"}
	running := map[string]context.CancelFunc{} // by uid
	var all sync.WaitGroup
	defer all.Wait()
	for {
		list, err := a.node.Pods(ctx)
		if ctx.Err() != nil {
			break
		}
		looking.Report(err)
		there := map[string]bool{}
		for _, pod := range list {
			if there[pod.UID] = pod.Member; !pod.Member || running[pod.UID] != nil {
				continue
			}
			own, stop := context.WithCancel(ctx)
			running[pod.UID] = stop
			all.Go(func() { a.serve(own, pod) })
		}
		for uid, stop := range running {
			if !there[uid] {
				stop()
				delete(running, uid)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(nodeLook):
		}
	}
	for _, stop := range running {
		stop()
	}
}

// serve reports for one pod until ctx ends.
func (a *nodeAgent) serve(ctx context.Context, pod kubernetes.NodePod) {
	log := a.log.With("pod", pod.Namespace+"/"+pod.Name)
	if err := a.report(ctx, pod, log); err != nil && ctx.Err() == nil {
		log.Error("nothing is reported for a pod", "error", err)
	}
}

func (a *nodeAgent) report(ctx context.Context, pod kubernetes.NodePod, log *slog.Logger) error {
	conn, leave, err := enlist(ctx, a.file, pod.Name, log)
	if err != nil {
		return err
	}
	defer func() { leave(); conn.Close() }()
	publish := publisher(conn)
	own, err := agent.New(agent.Options{
		Service: a.file.Service.Name, Instance: pod.Name, Period: a.file.Service.Sampling, Sampler: podSampler{a, pod},
		Publish: func(ctx context.Context, r quell.Reading) error {
			if r.Observation.WindowS == 0 {
				return nil // it was not read twice yet: the failure is logged
			}
			return publish(ctx, r)
		},
		Logger: log,
	})
	if err != nil {
		return err
	}
	unserve, err := conn.ServeOrders(a.file.Service.Name, pod.Name, func(ctx context.Context, o bus.Orders) (any, error) {
		return nil, carryOut(ctx, own, o)
	})
	if err != nil {
		return err
	}
	defer unserve()
	return own.Run(ctx)
}

// podSampler is what the agent of one pod reads. It is the same look at the machine for all pods.
type podSampler struct {
	of  *nodeAgent
	pod kubernetes.NodePod
}

// Subsample does nothing: the kernel adds everything up.
func (podSampler) Subsample() {}

// Sample returns what was measured of the pod.
func (p podSampler) Sample(now time.Time) (quell.Observation, []sensor.Failure) {
	latest, failed := p.of.look(now)
	o, ok := latest[p.pod.UID]
	if !ok {
		o = quell.Observation{At: now.UTC()}
	}
	var own []sensor.Failure
	for _, f := range failed {
		if _, of, single := strings.Cut(f.Sensor, " "); !single || of == p.pod.Namespace+"/"+p.pod.Name {
			own = append(own, f)
		}
	}
	return o, own
}

// look reads the machine, once for all pods that ask at about the same time.
func (a *nodeAgent) look(now time.Time) (map[string]quell.Observation, []sensor.Failure) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if since := now.Sub(a.last); !a.last.IsZero() && since >= 0 && since < a.file.Service.Sampling/2 {
		return a.latest, a.failed
	}
	list, err := a.node.Pods(context.Background())
	of := make([]pods.Pod, len(list))
	for i, pod := range list {
		of[i] = pods.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	}
	a.last = now
	a.latest, a.failed = a.sensor.Sample(now, of)
	if err != nil {
		a.failed = append(a.failed, sensor.Failure{Sensor: "pods", Err: err})
	}
	return a.latest, a.failed
}
