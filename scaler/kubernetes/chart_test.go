package kubernetes

import (
	"cmp"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/internal/need"
)

var update = flag.Bool("update", false, "write examples/kubernetes/quell.yaml again from the chart")

const (
	chart   = "../../packaging/chart"
	example = "../../examples/kubernetes/quell.yaml"
)

// helm runs Helm in a home of its own, and returns its output and what it says if it fails.
func helm(t *testing.T, args ...string) (out, problem string) {
	t.Helper()
	cmd := exec.Command(need.Helm(t), args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), cmp.Or(stderr.String(), err.Error())
	}
	return stdout.String(), ""
}

// rendered is what `helm template` makes of the chart.
func rendered(t *testing.T, values ...string) (text, problem string) {
	t.Helper()
	return helm(t, append([]string{"template", "quell", chart, "--namespace", "shop"}, values...)...)
}

// The plain manifests are those of the chart.
func TestManifestsAreTheChart(t *testing.T) {
	t.Parallel()
	text, problem := rendered(t, "--set", "config.scaler.target=deployment/web")
	if problem != "" {
		t.Fatal(problem)
	}
	lines := strings.Split(text, "\n")
	kept := []string{"# Quell beside the Deployment web in the namespace shop, in advise mode, made from packaging/chart.",
		"# docs/platforms/kubernetes.md explains every part. Apply it with `kubectl apply --server-side -f quell.yaml`."}
	for _, line := range lines[1:] { // the first one parts nothing
		if !strings.HasPrefix(line, "# Source: ") && line != "" {
			kept = append(kept, line)
		}
	}
	want := strings.Join(kept, "\n") + "\n"
	if *update {
		if err := os.WriteFile(example, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(example); err != nil || string(got) != want {
		t.Errorf("%s is not what the chart makes (%v): go test ./scaler/kubernetes -run ManifestsAreTheChart -update", example, err)
	}
}

// TestChartsValues checks what follows from values, and what is refused.
func TestChartsValues(t *testing.T) {
	t.Parallel()
	const target = "config.scaler.target=deployment/web"
	for name, tc := range map[string]struct {
		set         []string
		has, hasNot string // parts of what is made; has: of the error, if refused
		refused     bool
	}{
		"no target":      {nil, "config.scaler.target is missing", "", true},
		"no such target": {[]string{"config.scaler.target=web"}, "must be TYPE/NAME", "", true},
		"another kind": {[]string{"config.scaler.target=rollouts.v1alpha1.argoproj.io/web"}, "resources: [rollouts/scale]", "deployments/scale",
			false},
		"without nodes":  {[]string{target, "config.scaler.nodes=false"}, "kind: Role", "kind: ClusterRole", false},
		"without volume": {[]string{target, "persistence.enabled=false"}, "emptyDir: {}", "PersistentVolumeClaim", false},
		"for KEDA": {[]string{target, "config.keda.listen=0.0.0.0:9470"}, "{name: keda, port: 9470, targetPort: keda}", "kind: PodMonitor",
			false},
		"with a monitor": {[]string{target, "podMonitor=true"}, "kind: PodMonitor", "x", false},
		"without shown metrics": {[]string{target, "podMonitor=true,agent.nodes=true,config.balancer.metrics=127.0.0.1:9465"},
			"podMetricsEndpoints:\n    - {port: metrics}\n", "    - {port: balancer}", false},
		"with the balancer's metrics": {[]string{target, "podMonitor=true,config.balancer.metrics=0.0.0.0:9470"},
			"podMetricsEndpoints:\n    - {port: metrics}\n    - {port: balancer}\n", "  name: quell-agent\n", false},
		"with the agents' metrics": {[]string{target, "podMonitor=true,agent.nodes=true,config.agent.metrics=0.0.0.0:9467"},
			"app.kubernetes.io/instance: quell}\n  podMetricsEndpoints: [{port: metrics}]", "x", false},
		"limits of pods": {[]string{target, "agent.nodes=true,config.scaler.resize=true", "config.agent.policy.name=acs"},
			`- {apiGroups: [""], resources: [pods/resize], verbs: [patch]}`, "x", false},
		"no limits of pods": {[]string{target, "agent.nodes=true"}, "kind: DaemonSet", "  - {apiGroups: [\"\"], resources: [pods/resize]", false},
		"for others": {[]string{target, "service.type=LoadBalancer,config.scaler.join=true"},
			"  type: LoadBalancer\n  selector:\n    app.kubernetes.io/name: quell\n    app.kubernetes.io/instance: quell\n" +
				"  publishNotReadyAddresses: true\n  ports:\n    - {name: http, port: 80, targetPort: http}\n\n---", "x", false},
		"another balancer": {[]string{target, "config.balancer.kind=haproxy"},
			"    balancer:\n      kind: haproxy\n    data:", "x", false},
		"the balancer serves without a controller": {[]string{target}, "publishNotReadyAddresses: true", "x", false},
		"a long drain": {[]string{target, "terminationGracePeriodSeconds=200"}, "terminationGracePeriodSeconds: 200", "x", false},
		"with log-ins": {[]string{target, "config.web_config=/etc/quell/secrets/web.yml"},
			"readinessProbe: {tcpSocket: {port: metrics}",
			"          livenessProbe: {httpGet", false},
		"log-ins that Prometheus has not": {[]string{target, "podMonitor=true,config.web_config=/etc/quell/secrets/web.yml"},
			"podMonitor: true needs podMonitorEndpoint", "", true},
		"log-ins that Prometheus has": {[]string{target, "podMonitor=true,config.web_config=/etc/quell/secrets/web.yml",
			"podMonitorEndpoint.scheme=https,config.balancer.metrics=0.0.0.0:9465"},
			"    - {\"port\":\"metrics\",\"scheme\":\"https\"}\n    - {\"port\":\"balancer\",\"scheme\":\"https\"}\n", "x", false},
		"HAProxy's": {[]string{target, "config.balancer.kind=haproxy", "secret=bus", "image.tag=v1"}, "mountPath: /etc/quell/secrets",
			"name: balancer", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var args []string
			for _, s := range tc.set {
				args = append(args, "--set", s)
			}
			text, problem := rendered(t, args...)
			if tc.refused {
				text = problem
			}
			if (problem != "") != tc.refused || !strings.Contains(text, tc.has) || tc.hasNot != "" && strings.Contains(text, "\n"+tc.hasNot) {
				t.Errorf("%s\n%s", problem, text)
			}
		})
	}
}

// With log-ins that the values do not give to Prometheus, no PodMonitor is made by itself.
func TestNoMonitorWithoutItsLogIn(t *testing.T) {
	t.Parallel()
	args := []string{"--api-versions", "monitoring.coreos.com/v1/PodMonitor", "--set", "config.scaler.target=deployment/web"}
	if text, problem := rendered(t, args...); problem != "" || !strings.Contains(text, "kind: PodMonitor") {
		t.Errorf("without log-ins: %s\n%s", problem, text)
	}
	text, problem := rendered(t, append(args, "--set", "config.web_config=/etc/quell/secrets/web.yml")...)
	if problem != "" || strings.Contains(text, "kind: PodMonitor") {
		t.Errorf("with log-ins: %s\n%s", problem, text)
	}
}

// TestNamesThatLookLikeSomethingElse: a release or a namespace may have a name in which YAML would see a number or a truth value.
func TestNamesThatLookLikeSomethingElse(t *testing.T) {
	t.Parallel()
	text, problem := helm(t, "template", "true", chart, "--namespace", "404", "--set", "config.scaler.target=deployment/1e3",
		"--set", "podMonitor=true,agent.nodes=true,service.type=NodePort,secret=7,persistence.storageClass=8")
	if problem != "" {
		t.Fatal(problem)
	}
	for _, part := range strings.Split(text, "\n---\n") {
		var o struct {
			Metadata struct {
				Name, Namespace string
				Labels          map[string]string
			}
		}
		if err := yaml.Unmarshal([]byte(part), &o); err != nil {
			t.Errorf("%v in\n%s", err, part)
		}
	}
	for _, wanted := range []string{`resourceNames: ["1e3"]`, `secretName: "7"`, `storageClassName: "8"`, `claimName: "true"`,
		`serviceAccountName: "true"`, `kind: Role, name: "true"`, `app.kubernetes.io/instance: "true"}`} {
		if !strings.Contains(text, wanted) {
			t.Errorf("%s is missing in\n%s", wanted, text)
		}
	}
}

// nameValue is a value of a template that is a name, and only that.
var nameValue = regexp.MustCompile(
	`(?m)((?:[nN]ame|namespace|app\.kubernetes\.io/instance): |resourceNames: \[)(\{\{ [^{}]* \}\})(?:[,\]}]|$)`)

// TestNamesAreWrittenAsText: names that come from outside go through toYaml, which quotes those in which YAML would see something else.
func TestNamesAreWrittenAsText(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range nameValue.FindAllSubmatch(text, -1) {
			if found++; !strings.Contains(string(m[2]), "| toYaml }}") {
				t.Errorf("%s: %s%s is not quoted where it must be: let it end with `| toYaml`", file, m[1], m[2])
			}
		}
	}
	if found < 50 {
		t.Errorf("%d names found", found)
	}
}

// withAgents are values with which agents beside the service join, as the page has them.
var withAgents = []string{
	"--set", "config.scaler.target=deployment/web,config.scaler.join=true,config.scaler.probe_port=9466",
	"--set", "secret=quell-probe,config.probe.token_file=/etc/quell/secrets/token,config.probe.capacity=1Gbps",
	"--set", "config.policy.name=prima,config.policy.resource=network,config.policy.fast=null",
}

// TestAgentsOfTheChart checks the configurations of controller and agents, and that they fit together.
func TestAgentsOfTheChart(t *testing.T) {
	t.Parallel()
	text, problem := rendered(t, withAgents...)
	if problem != "" {
		t.Fatal(problem)
	}
	own, agent := configsOf(t, text)
	if s := own.Scaler.Settings.(*Settings); s.Proof() != string(agent.Bus.Proof) || own.Bus.Listen != "0.0.0.0:4222" ||
		agent.Bus.URL != "nats://quell.shop:4222" || agent.Probe.Listen != ":9466" || s.ProbePort != 9466 {
		t.Errorf("controller: %+v %+v; agent: %+v %+v", s, own.Bus, agent.Bus, agent.Probe)
	}
	if own.Service.Policy.Name != agent.Service.Policy.Name || own.Probe.Size != agent.Probe.Size || own.Listen == agent.Listen {
		t.Errorf("they do not fit: %+v, %+v", own, agent)
	}
	text, problem = rendered(t, "--set", "config.scaler.target=deployment/web,agent.nodes=true")
	if problem != "" {
		t.Fatal(problem)
	}
	own, agent = configsOf(t, text)
	if s := own.Scaler.Settings.(*Settings); s.Proof() != string(agent.Bus.Proof) || s.Joins.NodeAgents != "shop/quell-agent" ||
		agent.Bus.URL != "nats://quell.shop:4222" {
		t.Errorf("an agent for each node: %+v, %+v", s, agent.Bus)
	}
	text, problem = rendered(t, "--set", "config.scaler.target=deployment/web,agent.nodes=true,config.scaler.resize=true",
		"--set", "config.agent.policy.name=acs,config.agent.policy.by=caps,config.agent.policy.sampling=10s")
	if problem != "" {
		t.Fatal(problem)
	}
	if _, agent = configsOf(t, text); !agent.Scaler.Settings.(*Settings).Resize || agent.Agent.Policy.Chosen.Name != "acs" {
		t.Errorf("an agent that limits pods: %+v, %+v", agent.Scaler.Settings, agent.Agent.Policy)
	}
	for _, tc := range []struct{ set, wants string }{
		{"agent.bus.tls.ca=/etc/quell/secrets/ca.pem", "url: tls://quell.shop:4222"},
		{"config.bus.url=nats://nats.shop:4222,config.bus.credentials=/etc/quell/secrets/quell.creds", "url: nats://nats.shop:4222"},
	} {
		if text, problem := rendered(t, append([]string{"--set", tc.set}, withAgents...)...); !strings.Contains(text, tc.wants) ||
			strings.Contains(tc.set, "config.bus.url") && strings.Contains(text, "name: bus") {
			t.Errorf("%s: %s\n%s", tc.set, problem, text)
		}
	}
}

// configsOf are the configurations of controller and agents in what the chart makes.
func configsOf(t *testing.T, text string) (own, agent *config.File) {
	t.Helper()
	files := map[string]*config.File{}
	for _, part := range strings.Split(text, "\n---\n") {
		o := map[string]any{}
		if err := yaml.Unmarshal([]byte(part), &o); err != nil {
			t.Fatal(err)
		}
		if u := (&unstructured.Unstructured{Object: o}); u.GetKind() == "ConfigMap" {
			files[u.GetName()] = loaded(t, u)
		}
	}
	own, agent = files["quell"], files["quell-agent"]
	if own == nil || agent == nil {
		t.Fatalf("no two configurations in:\n%s", text)
	}
	return own, agent
}

// TestChart installs, upgrades and uninstalls the chart on a real API server that enforces the restricted standard for pods.
func TestChart(t *testing.T) {
	t.Parallel()
	need.Helm(t)
	r := newRig(t, deployments, 2)
	ready(t, r.driver(), 2)
	spaces := r.plane.Client.Resource(namespaces)
	restrict := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	if _, err := spaces.Patch(t.Context(), r.namespace, "application/merge-patch+json", restrict, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	access := r.kubeconfig()
	do := func(args ...string) {
		t.Helper()
		if out, problem := helm(t, append(args, "--kubeconfig", access, "--namespace", r.namespace)...); problem != "" {
			t.Fatalf("helm %s: %s\n%s", strings.Join(args, " "), problem, out)
		}
	}
	do("install", "quell", chart, "--set", "config.scaler.target=deployment/web")
	running := func() int {
		list, err := r.plane.Client.Resource(resource("", "pods")).Namespace(r.namespace).List(t.Context(), metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/instance=quell", FieldSelector: "status.phase=Running",
		})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	until(t, "the pod of Quell runs", func() bool { return running() == 1 })
	do(append([]string{"upgrade", "quell", chart, "--set", "config.mode=act"}, withAgents...)...)
	o, err := r.plane.Client.Resource(resource("", "configmaps")).Namespace(r.namespace).Get(t.Context(), "quell", metav1.GetOptions{})
	if err != nil || !strings.Contains(fmt.Sprint(o.Object["data"]), "mode: act") {
		t.Errorf("after the upgrade: %v, %v", o, err)
	}
	// Agents of nodes mount a folder of the host, which the restricted standard forbids.
	if _, err := spaces.Patch(t.Context(), r.namespace, "application/merge-patch+json", []byte(`{"metadata":{"labels":{
		"pod-security.kubernetes.io/enforce":"privileged"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	do(append([]string{"upgrade", "quell", chart, "--set", "agent.nodes=true"}, withAgents...)...)
	sidecar, err := os.ReadFile("../../examples/kubernetes/sidecar.yaml")
	if err != nil {
		t.Fatal(err)
	}
	patch, err := yaml.ToJSON(sidecar)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.plane.Client.Resource(r.resource).Namespace(r.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldValidation: "Strict", DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Errorf("an agent beside the service: %v", err)
	}
	do("uninstall", "quell")
	for _, what := range []schema.GroupVersionResource{
		resource("", "serviceaccounts"), resource("", "configmaps"), resource("", "persistentvolumeclaims"), resource("", "services"),
		resource("", "secrets"), resource("", "pods"), resource("apps", "deployments"), resource("apps", "replicasets"),
		resource("apps", "daemonsets"),
		resource("rbac.authorization.k8s.io", "roles"), resource("rbac.authorization.k8s.io", "rolebindings"),
		resource("rbac.authorization.k8s.io", "clusterroles"), resource("rbac.authorization.k8s.io", "clusterrolebindings"),
	} {
		until(t, "nothing is left of the "+what.Resource, func() bool {
			space := r.namespace
			if strings.HasPrefix(what.Resource, "cluster") {
				space = ""
			}
			list, err := r.plane.Client.Resource(what).Namespace(space).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range list.Items {
				if strings.Contains(o.GetName(), "quell") && (space != "" || strings.HasSuffix(o.GetName(), r.namespace)) {
					return false
				}
			}
			return true
		})
	}
	if n := r.replicas(); n != 2 {
		t.Errorf("the service has %d pods", n)
	}
}

func resource(group, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}
}

// kubeconfig writes how the rig's API server is reached.
func (r *rig) kubeconfig() string {
	r.t.Helper()
	authority, err := os.ReadFile(r.plane.Config.CAFile)
	if err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(r.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: test, user: {token: %s}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`, r.plane.Config.Host, base64.StdEncoding.EncodeToString(authority), r.config.BearerToken)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}
