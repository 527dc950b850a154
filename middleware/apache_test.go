package middleware

import (
	"errors"
	"strings"
	"testing"
)

// stockMPM has the form of the httpd-mpm.conf that Apache is distributed with: a block for each multi-processing module.
const stockMPM = `<IfModule !mpm_netware_module>
    PidFile "DIR/apache.pid"
</IfModule>
<IfModule mpm_prefork_module>
    StartServers             5
    MaxRequestWorkers      250
    MaxConnectionsPerChild   0
</IfModule>
<IfModule mpm_worker_module>
    StartServers             3
    ThreadsPerChild         25
    MaxRequestWorkers      400
</IfModule>
<IfModule mpm_event_module>
    StartServers             3
    ThreadsPerChild         25
    MaxRequestWorkers      150
</IfModule>
<IfModule mpm_netware_module>
    ThreadStackSize      65536
</IfModule>
`

func TestTheBlockOfTheRunningModule(t *testing.T) {
	const parameter = "MaxRequestWorkers"
	inOldWords := strings.NewReplacer("mpm_event_module", `"event.c"`, "mpm_worker_module", "worker.c", "mpm_prefork_module",
		"prefork.c").Replace
	for _, c := range []struct {
		name, content, module string
		has                   float64 // -1: an error
		says                  string
	}{
		{"event", stockMPM, "event", 150, ""},
		{"worker", stockMPM, "worker", 400, ""},
		{"prefork", stockMPM, "prefork", 250, ""},
		{"by file names", inOldWords(stockMPM), "worker", 400, ""},
		{"no block of the module that runs", stockMPM, "winnt", -1, "it sets MaxRequestWorkers only for other modules than winnt, which runs"},
		{"the server does not run", stockMPM, "", -1, "it sets MaxRequestWorkers 3 times, and which of them counts depends on"},
		{"one line, and the server does not run", "MaxRequestWorkers 7\n", "", 7, ""},
		{"an inner block", "<IfModule mpm_event_module>\n<IfModule !mpm_event_module>\nMaxRequestWorkers 1\n</IfModule>\nMaxRequestWorkers 2\n" +
			"</IfModule>\n", "event", 2, ""},
		{"another kind of module counts", "<IfModule ssl_module>\nMaxRequestWorkers 3\n</IfModule>\n", "event", 3, ""},
		{"not prefork", "<IfModule !prefork.c>\nMaxRequestWorkers 4\n</IfModule>\n", "event", 4, ""},
		{"twice for the same", "MaxRequestWorkers 4\n" + stockMPM, "event", -1, "it sets MaxRequestWorkers 2 times: keep one of them"},
		{"an end too many", "</IfModule>\n" + stockMPM, "event", 150, ""},
	} {
		d := directives{Apache.Defaults().server.line, func() (string, error) {
			if c.module == "" {
				return "", errors.New("apache is not running")
			}
			return c.module, nil
		}}
		values, err := d.values(c.content, []string{parameter}, nil)
		if c.has < 0 {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, %v", c.name, values, err)
			}
			continue
		}
		if err != nil || values[parameter] != c.has {
			t.Errorf("%s: %v, %v", c.name, values, err)
		}
		changed, err := d.with(c.content, map[string]float64{parameter: 42})
		if err != nil || strings.Count(changed, "MaxRequestWorkers") != strings.Count(c.content, "MaxRequestWorkers") {
			t.Errorf("%s: becomes %q, %v", c.name, changed, err)
		}
		if again, err := d.values(changed, []string{parameter}, nil); err != nil || again[parameter] != 42 {
			t.Errorf("%s: has %v, %v", c.name, again, err)
		}
	}
}

func TestBuiltWith(t *testing.T) {
	got, err := builtWith([]byte("Server version: Apache/2.4.62 (Unix)\nArchitecture:   64-bit\nServer MPM:     event\n  threaded:     yes\n"))
	if err != nil || got != "event" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := builtWith([]byte("Server version: Apache/2.4.62 (Unix)\n")); err == nil {
		t.Errorf("%q", got)
	}
}
