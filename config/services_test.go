package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sharedFile = "services: [a.yaml, sub/b.yaml]\ndata: data\nbus: {listen: '127.0.0.1:4300'}\nagent: {capacity: {network: 1Gbps}}\n"

// ownFile is the file of a service on two machines.
func ownFile(name, more string) string {
	return fmt.Sprintf(`service: %s
slo: {metric: mean, threshold: 75ms}
balancer: {kind: haproxy, haproxy: {sockets: [/run/h.sock], backend: %s}}
scaler: {instances: [{id: m1, address: "h1:80", probe: "h1:9466"}, {id: m2, address: "h2:80", probe: "h2:9466"}]}
%s`, name, name, more)
}

// writeFleet writes files into a folder, and goes there.
func writeFleet(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func twoServices() map[string]string {
	return map[string]string{"quell.yaml": sharedFile, "a.yaml": ownFile("shop", ""), "sub/b.yaml": ownFile("api", "")}
}

// Services share data, bus and agent, have folders and credentials of their own, and relative paths start at the file that has them.
func TestServicesOfAFleet(t *testing.T) {
	files := twoServices()
	files["quell.yaml"] = strings.Replace(files["quell.yaml"], "bus: {", "bus: {credentials: '{service}.creds', ", 1)
	files["sub/b.yaml"] += "models: m.json\n"
	writeFleet(t, files)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := drivers.LoadFleet("quell.yaml")
	if err != nil || len(fleet.Bad) > 0 || len(fleet.Services) != 2 || !fleet.Several() {
		t.Fatalf("%+v, %v", fleet, err)
	}
	b := fleet.Services[1]
	for what, pair := range map[string][2]string{
		"data":        {b.Data, filepath.Join(here, "data", "services", "api")},
		"store":       {b.Bus.StoreDir, filepath.Join(here, "data", "bus")},
		"keyring":     {b.Bus.Keyring, filepath.Join(here, "data", "credentials")},
		"credentials": {b.Bus.Credentials, filepath.Join(here, "api.creds")},
		"agent":       {b.AgentDir(), filepath.Join(here, "data", "agent")},
		"models":      {b.Models, filepath.Join("sub", "m.json")},
		"listen":      {b.Bus.Listen, "127.0.0.1:4300"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %s, want %s", what, pair[0], pair[1])
		}
	}
	if b.Agent.Capacity["network"] != 1e9 || b.Service.Name != "api" {
		t.Errorf("%+v", b)
	}
	const several = "names several services: give the file of one of them, as in a.yaml"
	if _, err := drivers.Load("quell.yaml"); err == nil || !strings.Contains(err.Error(), several) {
		t.Errorf("as the file of one service: %v", err)
	}
	os.Remove("sub/b.yaml")
	contacts, err := drivers.LoadContacts("quell.yaml")
	if err != nil || len(contacts.Services) != 1 || contacts.Services[0].Bus.Listen != "127.0.0.1:4300" || len(contacts.Bad) != 1 {
		t.Errorf("%+v, %v", contacts, err)
	}
}

// Each mistake names its file and line, and what to do.
func TestMistakesOfAFleet(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a shared section": {map[string]string{"a.yaml": ownFile("shop", "bus: {listen: '127.0.0.1:4222'}\n")},
			"a.yaml:5:6: bus: is set in quell.yaml for all of its services (remove it here)"},
		"services within services": {map[string]string{"a.yaml": ownFile("shop", "services: [b.yaml]\n")}, "a.yaml:"},
		"an own section": {map[string]string{"quell.yaml": sharedFile + "mode: act\n"},
			"quell.yaml:5:7: mode: belongs to one service, and this file names several (write it into the file of the service)"},
		"the same name": {map[string]string{"sub/b.yaml": strings.Replace(ownFile("shop", ""), "backend: shop", "backend: other", 1)},
			"sub/b.yaml:1:10: service: shop is the service of a.yaml:1, too"},
		"the same backend": {map[string]string{"sub/b.yaml": strings.Replace(ownFile("api", ""), "backend: api", "backend: shop", 1)},
			"sub/b.yaml:3:11: balancer: backend shop of HAProxy at /run/h.sock is used for service shop, too (a.yaml:3)"},
		"the same port for KEDA": {map[string]string{"a.yaml": ownFile("shop", "keda: {listen: '0.0.0.0:9470'}\n"),
			"sub/b.yaml": ownFile("api", "keda: {listen: '127.0.0.1:9470'}\n")},
			"sub/b.yaml:5:16: keda.listen: 127.0.0.1:9470 cannot be listened at beside 0.0.0.0:9470 of service shop (a.yaml:5)"},
		"another period": {map[string]string{"sub/b.yaml": ownFile("api", "sampling: 5s\n")},
			"sub/b.yaml:5:11: sampling: must be as in a.yaml:1, because one agent on a machine serves all services"},
		"another agent": {map[string]string{"sub/b.yaml": strings.Replace(ownFile("api", ""), `probe: "h2:9466"`, `probe: "h2:9467"`, 1)},
			"sub/b.yaml:4:"},
		"instances of its own": {map[string]string{"a.yaml": "service: shop\nslo: {metric: mean, threshold: 75ms}\n" +
			"scaler: {kind: command, start: [up], stop: [down], list: [ls]}\n"},
			"a.yaml:3:9: scaler: services that share a controller share machines"},
		"a name of dots": {map[string]string{"a.yaml": ownFile("..", "")}, "a.yaml:1:10: service: \"..\" cannot be the name of a folder"},
		"twice": {map[string]string{"quell.yaml": strings.Replace(sharedFile, "sub/b", "a", 1)},
			"quell.yaml:1:20: services[1]: a.yaml is listed twice"},
		"one credential for two": {map[string]string{"quell.yaml": strings.Replace(sharedFile, "bus: {", "bus: {credentials: x, ", 1)},
			"quell.yaml:3:20: bus.credentials: a credential is for one service, and there are 2"},
		"one join token for two": {map[string]string{"quell.yaml": strings.Replace(sharedFile, "bus: {", "bus: {join: x, ", 1)},
			"quell.yaml:3:13: bus.join: a join token is for one service, and there are 2"},
		"itself": {map[string]string{"quell.yaml": strings.Replace(sharedFile, "sub/b", "./quell", 1)},
			"quell.yaml:1:20: services[1]: quell.yaml names itself (name the file of a service"},
		"no such file": {map[string]string{"quell.yaml": strings.Replace(sharedFile, "sub/b", "c", 1)}, "c.yaml: "},
		"a torn file":  {map[string]string{"sub/b.yaml": ownFile("api", "policy: {name: [\n")}, "sub/b.yaml:"},
	} {
		t.Run(name, func(t *testing.T) {
			files := twoServices()
			maps.Copy(files, c.files)
			writeFleet(t, files)
			fleet, err := drivers.LoadFleet("quell.yaml")
			if err == nil {
				err = fleet.Err()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
			if _, checked := drivers.CheckFleet("quell.yaml"); checked == nil || !strings.Contains(checked.Error(), c.want) {
				t.Errorf("check: %v\nwant %s", checked, c.want)
			}
		})
	}
}

// What only a check finds is found in the file that has it.
func TestCheckOfAFleet(t *testing.T) {
	files := twoServices()
	files["quell.yaml"] = strings.Replace(sharedFile, "agent: {", "agent: {probes: [disk], ", 1)
	files["a.yaml"] += "models: none.json\n"
	writeFleet(t, files)
	_, err := drivers.CheckFleet("quell.yaml")
	for _, want := range []string{"quell.yaml:4:", "disk is probed", "a.yaml:5:9: models: none.json is not there"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if n := strings.Count(fmt.Sprint(err), "disk is probed"); n != 1 {
		t.Errorf("said %d times", n)
	}
}
