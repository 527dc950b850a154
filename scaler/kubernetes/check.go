package kubernetes

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/quellhq/quell/scaler"
)

// Ask asks the API server for everything that the configuration needs there: rights, the target, its pods, and other autoscalers.
func (s *Settings) Ask(ctx context.Context) []scaler.Answer {
	opts, err := s.options()
	if err != nil {
		return []scaler.Answer{{Asked: "Kubernetes", Err: err}}
	}
	return ask(ctx, opts)
}

// examination collects the API server's answers.
type examination struct {
	*Driver
	user    string          // who asks
	lacks   map[string]bool // resources on which a right is missing
	answers []scaler.Answer
}

func ask(ctx context.Context, opts Options) []scaler.Answer {
	d, err := connected(opts)
	if err != nil {
		return []scaler.Answer{{Asked: "Kubernetes", Err: err}}
	}
	x := &examination{Driver: d, lacks: map[string]bool{}}
	x.user, err = d.whoAmI(ctx)
	x.add("API server "+opts.Config.Host+": who asks", x.user, err)
	if err != nil {
		return x.answers
	}
	agent := x.user == opts.agents()
	rights := opts.rights()
	if agent {
		rights = opts.agentRights()
	}
	for _, r := range rights {
		x.askRight(ctx, r)
	}
	if !agent {
		x.askTarget(ctx)
	}
	return x.answers
}

func (x *examination) add(asked, got string, err error) {
	x.answers = append(x.answers, scaler.Answer{Asked: "Kubernetes: " + asked, Got: got, Err: err})
}

// whoAmI returns the name that the API server has for the user of the connection.
func (d *Driver) whoAmI(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	review := &authenticationv1.SelfSubjectReview{}
	err := d.api.authentication.Post().Resource("selfsubjectreviews").VersionedParams(&metav1.CreateOptions{}, metav1.ParameterCodec).
		Body(review).Do(ctx).Into(review)
	if err != nil {
		return "", fmt.Errorf("%w. scaler.kubeconfig and scaler.context say who asks, in a pod its service account", err)
	}
	return review.Status.UserInfo.Username, nil
}

// right is what one rule of a role allows.
type right struct {
	group, resource string
	name            string // of the only object; "": all
	cluster         bool   // in all namespaces, or in none
	verbs           []string
}

// rights are those that the configuration needs. To advise, reading is enough.
func (o *Options) rights() []right {
	target := right{group: o.Resource.Group, resource: o.Resource.Resource, name: o.Name, verbs: []string{"list", "watch"}}
	scale := right{group: target.group, resource: target.resource + "/scale", name: o.Name, verbs: []string{"get"}}
	pods := right{resource: "pods", verbs: []string{"list", "watch"}}
	rights := []right{{group: "autoscaling", resource: "horizontalpodautoscalers", verbs: []string{"list", "watch"}}}
	if !o.Advises {
		scale.verbs = append(scale.verbs, "patch")
		pods.verbs = append(pods.verbs, "patch")
		rights = append(rights, right{resource: "pods/eviction", verbs: []string{"create"}})
	}
	if o.Nodes {
		rights = append(rights, right{resource: "nodes", cluster: true, verbs: []string{"list", "watch"}})
	}
	if o.Joins.On {
		rights = append(rights, right{group: "authentication.k8s.io", resource: "tokenreviews", cluster: true, verbs: []string{"create"}})
	}
	return append([]right{target, scale, pods}, rights...)
}

// agents is the name that the API server has for agents of nodes; "": there are none.
func (o *Options) agents() string {
	namespace, name, ok := strings.Cut(o.Joins.NodeAgents, "/")
	if !ok {
		return ""
	}
	return "system:serviceaccount:" + namespace + ":" + name
}

// agentRights are those that agents of nodes need.
func (o *Options) agentRights() []right {
	rights := []right{
		{group: o.Resource.Group, resource: o.Resource.Resource + "/scale", name: o.Name, verbs: []string{"get"}},
		{resource: "pods", cluster: true, verbs: []string{"list", "watch"}},
	}
	if o.Resizes {
		rights = append(rights, right{resource: "pods/resize", verbs: []string{"patch"}})
	}
	return rights
}

// rule is the rule of a role that gives these verbs.
func (r right) rule(verbs []string) string {
	names := ""
	if r.name != "" {
		names = "resourceNames: [" + r.name + "], "
	}
	return fmt.Sprintf("{apiGroups: [%q], resources: [%s], %sverbs: [%s]}", r.group, r.resource, names, strings.Join(verbs, ", "))
}

// askRight asks which verbs of a right are missing.
func (x *examination) askRight(ctx context.Context, r right) {
	asked := "rights on " + r.resource
	var missing []string
	for _, verb := range r.verbs {
		allowed, err := x.may(ctx, r, verb)
		if err != nil {
			x.add(asked, "", err)
			return
		}
		if !allowed {
			missing = append(missing, verb)
		}
	}
	if len(missing) == 0 {
		x.add(asked, strings.Join(r.verbs, ", "), nil)
		return
	}
	x.lacks[r.resource] = true
	where, role := " in namespace "+x.opts.Namespace, "a Role there"
	if r.cluster {
		where, role = "", "a ClusterRole"
	}
	x.add(asked, "", fmt.Errorf("%s may not %s %s%s: add the rule %s to %s that is bound to that user", x.user,
		strings.Join(missing, ", "), r.resource, where, r.rule(missing), role))
}

// may asks whether the user of the connection may do something.
func (d *Driver) may(ctx context.Context, r right, verb string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	resource, sub, _ := strings.Cut(r.resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: r.group, Resource: resource, Subresource: sub, Name: r.name, Verb: verb},
	}}
	if !r.cluster {
		review.Spec.ResourceAttributes.Namespace = d.opts.Namespace
	}
	err := d.api.authorization.Post().Resource("selfsubjectaccessreviews").VersionedParams(&metav1.CreateOptions{}, metav1.ParameterCodec).
		Body(review).Do(ctx).Into(review)
	return review.Status.Allowed, err
}

// askTarget asks for the target, its pods and other autoscalers, as far as there are rights to.
func (x *examination) askTarget(ctx context.Context) {
	resource := x.opts.Resource.Resource
	if x.lacks[resource] {
		return
	}
	target, err := x.read(ctx)
	x.add(x.words(), stateText(target), err)
	if target == nil {
		return
	}
	if !x.lacks[resource+"/scale"] && !x.lacks["pods"] {
		pods, err := x.countPods(ctx)
		x.add("pods of "+x.words(), pods, err)
	}
	if !x.lacks["horizontalpodautoscalers"] {
		rival, err := x.askRival(ctx, target)
		x.add("autoscaler of "+x.words(), rival, err)
	}
}

// read returns the target, nil with an error. It lists, because there is no right to get it.
func (d *Driver) read(ctx context.Context) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	list, err := d.object().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", d.opts.Name).String()})
	if err != nil {
		return nil, plain(err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("there is no such object: `kubectl get %s -n %s` lists those that exist; scaler.target and scaler.namespace name "+
			"the one", d.opts.Resource.Resource, d.opts.Namespace)
	}
	return &list.Items[0], nil
}

func stateText(target *unstructured.Unstructured) string {
	if target != nil && target.GetAnnotations()[Paused] == "true" {
		return "exists, and its annotation " + Paused + " keeps Quell from starting and stopping pods"
	}
	return "exists"
}

func (d *Driver) countPods(ctx context.Context) (string, error) {
	selector, err := d.selector(ctx)
	if err != nil {
		return "", err
	}
	pods, err := d.list(ctx, selector)
	if err != nil {
		return "", err
	}
	ready := 0
	for _, pod := range pods {
		if active(pod) && isReady(pod) {
			ready++
		}
	}
	return fmt.Sprintf("%d, of which %d are ready", len(pods), ready), nil
}

// askRival asks whether an autoscaler has the same target. That is an error only if Quell acts.
func (d *Driver) askRival(ctx context.Context, target *unstructured.Unstructured) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	list := &autoscalingv1.HorizontalPodAutoscalerList{}
	err := d.api.autoscaling.Get().Namespace(d.opts.Namespace).Resource("horizontalpodautoscalers").Do(ctx).Into(list)
	if err != nil {
		return "", plain(err)
	}
	for i := range list.Items {
		hpa := &list.Items[i]
		switch {
		case !targets(hpa, target):
		case d.opts.Advises:
			return hpa.Name + "; remove it before `mode: act`", nil
		default:
			return "", d.shared(hpa)
		}
	}
	return "none", nil
}
