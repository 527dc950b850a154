package experiment

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/need"
	"github.com/quellhq/quell/lab/testbed/kernel"
	"github.com/quellhq/quell/middleware"
)

// The agent of a calendar has a configuration that lists the parameters of Apache and PHP, with files that set them. All other agents read
// the service's.
func TestAgentsOfTheCalendarListParameters(t *testing.T) {
	if err := kernel.CheckCalendar(); err != nil {
		need.Skip(t, err.Error())
	}
	dir := t.TempDir()
	service := filepath.Join(dir, "quell.yaml")
	if err := os.WriteFile(service, []byte("service: shop\nslo: {metric: mean, threshold: 75ms}\nsampling: 1s\npolicy: {name: static}\n"+
		"data: "+dir+"\nprobe: {listen: \"127.0.0.1:9466\", token: x, capacity: 1Gbps}\nscaler: {kind: fixed, instances: "+
		"[{id: i1, address: \"127.0.0.1:80\", probe: \"127.0.0.1:9466\"}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := Instance{Config: service, Prefix: "quell", Host: "h1", ID: "i1", Dir: dir}
	if path, err := i.configure(&kernel.Worker{}); path != service || err != nil {
		t.Errorf("dynamic work: %s, %v", path, err)
	}
	calendar := &kernel.Calendar{Dir: filepath.Join(dir, "h1")}
	servers, err := calendarServers(calendar)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		if s.Settings.PID == "" || len(s.Settings.Check) == 0 {
			t.Errorf("%s", s)
		}
		for _, p := range s.Settings.Parameters {
			if p.Min >= p.Max || p.File == "" && s.Settings.File == "" {
				t.Errorf("%s: %+v", s.Kind, p)
			}
		}
	}
	file, err := daemon.Drivers().Load(service)
	if err != nil {
		t.Fatal(err)
	}
	file.Agent.Servers = servers
	again, err := daemon.Drivers().Parse("quell.yaml", []byte(written(file)))
	if err != nil || len(again.Agent.Servers) != 2 || again.Agent.Servers[0].String() != servers[0].String() {
		t.Errorf("%+v, %v", again, err)
	}
}

// A record that a killed agent left of a calendar's file does not keep the next agent from changing the new file.
func TestParametersOfAnEarlierRunAreForgotten(t *testing.T) {
	dir := t.TempDir()
	path, pid := filepath.Join(dir, "php-fpm.conf"), filepath.Join(dir, "fpm.pid")
	record, err := json.Marshal(map[string]any{"original": []byte("pm.max_children = 8\nlisten = old\n"), "wrote": []string{"x"},
		"values": map[string]float64{"pm.max_children": 16}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{path: "pm.max_children = 8\nlisten = new\n", pid: fmt.Sprint(os.Getpid()),
		filepath.Join(dir, ".php-fpm.conf.quell-original"): string(record)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := forgetChanges(dir); err != nil {
		t.Fatal(err)
	}
	settings := middleware.PHPFPM.Defaults()
	settings.File, settings.PID, settings.Check = path, pid, nil
	settings.Parameters = []middleware.Parameter{{Name: "pm.max_children", Min: 2, Max: 32}}
	driver, err := middleware.Open(t.Context(), middleware.Server{Kind: middleware.PHPFPM.Name, Settings: settings}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := driver.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	// The process is not php-fpm, so nothing is changed; but the reason is not an edit by somebody.
	if err := driver.Set(t.Context(), "pm.max_children", 16); err == nil || strings.Contains(err.Error(), "edited") {
		t.Errorf("got %v", err)
	}
}
