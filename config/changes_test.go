package config

import (
	"slices"
	"strings"
	"testing"
)

func TestChangedKeysAndWhatTheyNeed(t *testing.T) {
	const fixed = "scaler: {instances: [{id: a, address: 'h:1'}, {id: b, address: 'h:2'}]}\n"
	const haproxy = "balancer: {kind: haproxy, haproxy: {sockets: [/run/haproxy.sock], backend: app}}\n"
	for name, c := range map[string]struct {
		before, after string
		changed       string
		needs         string
	}{
		"nothing":               {"mode: act\n", "", "", ""},
		"another way of saying": {"sampling: 10s\nguard: {floor: 5%}\n", "sampling: 10000ms\nguard: {floor: 0.05}\n", "", ""},
		"the policy":            {"", "policy: {name: lr}\nguard: {step: 10%}\nmode: advise\n", "guard.step, mode, policy.name", ""},
		"the order of a set":    {"policy: {resource: [cpu, network]}\n", "policy: {resource: [network, cpu]}\n", "", ""},
		"resources":             {"policy: {resource: network}\n", "policy: {resource: auto}\n", "policy.resource", ""},
		"the prober's count":    {"", "probe: {count: 20}\n", "probe.count", "probe.count changed: send SIGHUP to the balancer to apply it."},
		"a prober of its own": {"probe: {from: controller}\n", "probe: {from: controller, count: 20, size: 50KB}\n", "probe.count, probe.size",
			"probe.count and probe.size changed: restart the controller to apply them."},
		"where agents answer": {"", "probe: {listen: '127.0.0.1:7'}\n", "probe.listen",
			"probe.listen changed: send SIGHUP to the agents to apply it."},
		"several at once": {"", "policy: {name: lr}\nbalancer: {listen: '127.0.0.1:7'}\nagent: {interface: lo}\n",
			"agent.interface, balancer.listen, policy.name",
			"balancer.listen changed: restart the balancer to apply it. agent.interface changed: send SIGHUP to the agents to apply it."},
		"limits of the balancer": {"", "balancer: {max_conns: 7, drain: 1s, timeouts: {body: 1s, idle: 1s}}\n",
			"balancer.drain, balancer.max_conns, balancer.timeouts.body, balancer.timeouts.idle",
			"balancer.timeouts.idle changed: restart the balancer to apply it. " +
				"balancer.drain changed: restart the controller and send SIGHUP to the balancer to apply it. " +
				"balancer.max_conns and balancer.timeouts.body changed: send SIGHUP to the balancer to apply them."},
		"connections of one client": {"", "balancer: {max_conns_per_client: 0}\n", "balancer.max_conns_per_client",
			"balancer.max_conns_per_client changed: send SIGHUP to the balancer to apply it."},
		"more connections of one client": {"balancer: {max_conns_per_client: 7}\n", "balancer: {max_conns_per_client: 8}\n",
			"balancer.max_conns_per_client", "balancer.max_conns_per_client changed: send SIGHUP to the balancer to apply it."},
		"classes of requests": {"", "balancer: {classes: [{name: home, path: /}]}\n", "balancer.classes",
			"balancer.classes changed: restart the balancer to apply it."},
		"the bus": {"", "bus: {url: 'nats://h:1'}\n", "bus.url",
			"bus.url changed: restart the controller, the balancer and the agents to apply it."},
		"a list, and what follows from it": {fixed, strings.Replace(fixed, "h:2", "h:3", 1), "scaler.instances",
			"scaler.instances changed: restart the controller to apply it."},
		"one more of a list": {"", fixed, "scaler.instances", "scaler.instances changed: restart the controller to apply it."},
		"a capacity": {"agent: {capacity: {network: 1Gbps}}\n", "agent: {capacity: {network: 2Gbps}}\n", "agent.capacity.network",
			"agent.capacity.network changed: send SIGHUP to the balancer and the agents to apply it."},
		"a fast policy": {"", "policy: {fast: outlier}\n", "policy.fast.name",
			"policy.fast.name changed: send SIGHUP to the balancer and the agents to apply it."},
		"a fast policy behind HAProxy": {haproxy, haproxy + "policy: {fast: outlier}\n", "policy.fast.name",
			"policy.fast.name changed: send SIGHUP to the agents to apply it."},
		"classes behind HAProxy": {haproxy, strings.Replace(haproxy, "}}", "}, classes: [{name: home, path: /}]}", 1), "balancer.classes",
			"balancer.classes changed: restart the controller to apply it."},
		"the period behind HAProxy": {haproxy, haproxy + "sampling: 5s\n", "sampling",
			"sampling changed: restart the controller and send SIGHUP to the agents to apply it."},
		"the period of a prober in the controller": {"probe: {from: controller}\n", "probe: {from: controller}\nsampling: 5s\n", "sampling",
			"sampling changed: restart the controller and send SIGHUP to the balancer and the agents to apply it."},
		"training": {"", "train: {plan: full}\n", "train.plan", ""},
	} {
		before, err := drivers.Parse("quell.yaml", []byte(least+c.before))
		if err != nil {
			t.Fatal(err)
		}
		after, err := drivers.Parse("quell.yaml", []byte(least+c.after))
		if err != nil {
			t.Fatal(err)
		}
		changed := Changed(before, after)
		if got := strings.Join(changed, ", "); got != c.changed {
			t.Errorf("%s: changed %s, want %s", name, got, c.changed)
		}
		if got := NeedsRestart(after, changed, changed); got != c.needs {
			t.Errorf("%s: %s, want %s", name, got, c.needs)
		}
		if back := Changed(after, before); !slices.Equal(back, changed) {
			t.Errorf("%s: changed back %v", name, back)
		}
	}
}

// A reload repeats what the controller itself must be restarted for, and says only once what other processes need.
func TestWhatAReloadRepeats(t *testing.T) {
	f, err := drivers.Parse("quell.yaml", []byte(least))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sinceStart, now []string
		want            string
	}{
		{[]string{"agent.interface"}, []string{"agent.interface"}, "agent.interface changed: send SIGHUP to the agents to apply it."},
		{[]string{"agent.interface"}, nil, ""},
		{nil, []string{"agent.interface"}, "agent.interface changed: send SIGHUP to the agents to apply it."}, // changed back
		{[]string{"bus.url"}, nil, "bus.url changed: restart the controller to apply it."},
		{nil, []string{"bus.url"}, "bus.url changed: only if started with another value, restart the balancer and the agents to apply it."},
		{[]string{"agent.interface", "bus.url"}, []string{"probe.count"}, "bus.url changed: restart the controller to apply it. " +
			"probe.count changed: send SIGHUP to the balancer to apply it."},
	} {
		if got := NeedsRestart(f, c.sinceStart, c.now); got != c.want {
			t.Errorf("since the start %v, now %v: %q, want %q", c.sinceStart, c.now, got, c.want)
		}
	}
}

// TestEveryKeyHasAnOwner checks that the declarations of all keys say who reads them.
func TestEveryKeyHasAnOwner(t *testing.T) {
	f := drivers.Defaults()
	values := map[string]string{}
	table := drivers.fileKeys(&f)
	table.Currents("", values)
	for key := range values {
		if reader, _ := table.Reader(key); reader == nil {
			t.Errorf("nobody reads %s", key)
		}
	}
}
