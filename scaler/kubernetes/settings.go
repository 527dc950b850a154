package kubernetes

import (
	"cmp"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/setting"
)

// Kind is the scaler whose instances are pods.
var Kind = scaler.Kind{
	Name: "kubernetes", About: "pods of a Deployment, a StatefulSet or the like",
	Defaults: func() scaler.Settings { return &Settings{Nodes: true, Joins: Joining{Audience: Audience}} },
}

// Settings are its configuration.
type Settings struct {
	Target              string // kubectl's TYPE/NAME
	Namespace           string
	Port, ProbePort     int
	Kubeconfig, Context string
	Nodes               bool
	Joins               Joining
	Resize              bool // agents of nodes change the limits of pods
	advises             bool // others may scale the target
}

// Keys is the table of its keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Req("target", setting.Text(&s.Target).Then(targetProblem),
			"what is scaled, as kubectl writes it: deployment/web, statefulset/web, or RESOURCE.VERSION.GROUP/NAME for another kind with a "+
				"scale subresource"),
		setting.Opt("namespace", setting.Text(&s.Namespace).Then(namespaceProblem), "its namespace").
			Or("the controller's own in a cluster, else that of the kubeconfig's context"),
		setting.Req("port", setting.Whole(&s.Port).Between(1, 65535), "port of the service in each pod"),
		setting.Opt("probe_port", setting.Whole(&s.ProbePort).Between(1, 65535), "port of the agents' probe servers").Or("none"),
		setting.Opt("kubeconfig", setting.Text(&s.Kubeconfig), "file that says how the API server is reached").
			Or("KUBECONFIG or ~/.kube/config, else the pod's service account"),
		setting.Opt("context", setting.Text(&s.Context), "context in the kubeconfig").Or("its current one"),
		setting.Opt("nodes", setting.Bool(&s.Nodes),
			"whether nodes are read, for their pressure and the type of their machine; that needs a ClusterRole"),
		setting.Opt("join", setting.Bool(&s.Joins.On),
			"whether agents may join with the token of their pod's service account; that needs the right to create tokenreviews"),
		setting.Opt("audience", setting.Text(&s.Joins.Audience).Then(audienceProblem), "whom these tokens must be for"),
		setting.Opt("node_agents", setting.Text(&s.Joins.NodeAgents).Then(accountProblem),
			"service account, as NAMESPACE/NAME, of agents that report for all pods of the service on their node").Or("none"),
		setting.Opt("resize", setting.Bool(&s.Resize), "whether these agents put the limits of their `agent.policy` in force by resizing the "+
			"service's pods in place; that needs the right to patch pods/resize"),
	}
}

// Check notes whether Quell only advises, and refuses keys without the ones that they need.
func (s *Settings) Check(d *setting.Decoder, service quell.Service) {
	s.advises = service.Mode == quell.Advise
	if s.Resize && s.Joins.NodeAgents == "" && d.Sound("scaler.node_agents") {
		d.Refuse("scaler.resize", "set scaler.node_agents", "is for agents of nodes, and no account of theirs is named")
	}
}

// Proof is the kind of proof with which agents may join, "" for none.
func (s *Settings) Proof() string {
	if !s.Joins.On {
		return ""
	}
	return Proof
}

// Files are the paths that are relative to the configuration.
func (s *Settings) Files(string) []*string { return []*string{&s.Kubeconfig} }

// New makes the driver.
func (s *Settings) New(in scaler.Env) (scaler.Driver, error) {
	opts, err := s.options()
	if err != nil {
		return nil, err
	}
	return scaler.Made(New(opts))
}

func (s *Settings) options() (Options, error) {
	config, namespace, err := connection(s.Kubeconfig, s.Context)
	resource, name, _ := parseTarget(s.Target)
	return Options{
		Config: config, Namespace: cmp.Or(s.Namespace, namespace), Resource: resource, Name: name, Port: s.Port, ProbePort: s.ProbePort,
		Nodes: s.Nodes, Joins: s.Joins, Resizes: s.Resize, Advises: s.advises, Now: time.Now,
	}, err
}

// known are the kinds that need neither version nor group.
var known = map[string]schema.GroupVersionResource{
	"deployment":            {Group: "apps", Version: "v1", Resource: "deployments"},
	"statefulset":           {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"replicaset":            {Group: "apps", Version: "v1", Resource: "replicasets"},
	"replicationcontroller": {Version: "v1", Resource: "replicationcontrollers"},
}

// parseTarget reads kubectl's TYPE/NAME. ok is false if it is none.
func parseTarget(text string) (resource schema.GroupVersionResource, name string, ok bool) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return resource, "", false
	}
	if r, short := known[strings.TrimSuffix(strings.ToLower(kind), "s")]; short {
		return r, name, true
	}
	parts := strings.SplitN(kind, ".", 3)
	if len(parts) < 3 || len(validation.IsDNS1123Subdomain(kind)) > 0 {
		return resource, "", false
	}
	return schema.GroupVersionResource{Resource: parts[0], Version: parts[1], Group: parts[2]}, name, true
}

func targetProblem(text string) string {
	if _, _, ok := parseTarget(text); ok {
		return ""
	}
	return "must be TYPE/NAME, as in deployment/web, or RESOURCE.VERSION.GROUP/NAME, as in rollouts.v1alpha1.argoproj.io/web, is " +
		setting.Shorten(text)
}

func namespaceProblem(text string) string {
	if len(validation.IsDNS1123Label(text)) > 0 {
		return "must be at most 63 lower-case letters, digits and hyphens, as in shop, is " + setting.Shorten(text)
	}
	return ""
}

func audienceProblem(text string) string {
	if text == "" || len(text) > 256 || strings.ContainsFunc(text, unicode.IsSpace) {
		return "must be 1 to 256 characters without spaces, as in quell, is " + setting.Shorten(text)
	}
	return ""
}

func accountProblem(text string) string {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "must be NAMESPACE/NAME, as in shop/quell-agent, is " + setting.Shorten(text)
	}
	return ""
}
