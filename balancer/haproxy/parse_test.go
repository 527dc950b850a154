package haproxy

import (
	"strings"
	"testing"
)

const stateText = `1
# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port
3 b 1 s1 127.0.0.1 2 0 77 1 1 6 3 4 6 0 0 0 - 18081 - 0 0 - - 0
3 b 2 s2 ::1 0 8 1 1 1 8 2 0 6 3 0 0 s2.internal 18082 - 0 0 - - 0
3 b 3 slot1 - 0 37 1 1 1 1 0 0 14 0 0 0 unused.invalid 1 - 0 0 - - 0`

const statText = `# pxname,svname,qcur,qmax,scur,smax,slim,stot,hrsp_2xx,hrsp_5xx,econ,ttime,type,mode,algo,
b,s1,0,0,3,0,,40,30,2,1,12,2,http,,
b,s2,0,0,0,0,,0,,,,,2,http,,
b,late,0,0,0,0,,0,,,,,2,http,,
b,BACKEND,0,0,3,0,,40,30,2,1,12,1,http,leastconn,`

func TestParseState(t *testing.T) {
	var how scheduling
	servers, id, err := parseState(stateText)
	if err == nil {
		how, err = parseStat(statText, servers)
	}
	if err != nil {
		t.Fatal(err)
	}
	if id != "3" || how != (scheduling{"http", "leastconn"}) {
		t.Errorf("the backend is %s, %+v", id, how)
	}
	s1, s2, slot := servers[0], servers[1], servers[2]
	if s1.name != "s1" || s1.address != "127.0.0.1:18081" || s1.weight != 77 || !s1.up || s1.inMaint() || s1.isDraining() || s1.agent {
		t.Errorf("s1 is %+v", s1)
	}
	if s1.sessions != 3 || s1.total != 40 || s1.responses != 32 || s1.failures != 3 || s1.totalMS != 12 {
		t.Errorf("s1 counts %+v", s1)
	}
	if s2.address != "[::1]:18082" || s2.up || !s2.isDraining() || !s2.agent || s2.fqdn != "s2.internal" {
		t.Errorf("s2 is %+v", s2)
	}
	if slot.address != "" || !slot.inMaint() {
		t.Errorf("the slot is %+v", slot)
	}
}

func TestParseOddAnswers(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "a version to come": "2\n# srv_name\nx", "no columns": "1\nb 3", "a column too few": "1\n# srv_name srv_addr\ns 1.2.3.4",
		"letters for a number": strings.Replace(stateText, " 77 ", " many ", 1),
		"an impossible weight": strings.Replace(stateText, " 77 ", " 1000 ", 1),
		"a short line":         "1\n" + strings.Split(stateText, "\n")[1] + "\n3 b 1 s1",
	} {
		if servers, _, err := parseState(text); err == nil {
			t.Errorf("%s: %+v", name, servers)
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "other columns": "# a,b\n1,2", "letters for a number": strings.Replace(statText, ",40,", ",many,", 1),
	} {
		servers, _, _ := parseState(stateText)
		if _, err := parseStat(text, servers); err == nil {
			t.Errorf("%s: %+v", name, servers)
		}
	}
	if i, err := parseInfo("Name: HAProxy\nVersion: 2.6.12\nPid: 12\nUptime_sec: 3\nStopping: 1\n"); err != nil ||
		i != (info{pid: 12, uptime: 3, stopping: true, version: "2.6.12"}) {
		t.Errorf("%+v, %v", i, err)
	}
	if _, err := parseInfo("Unknown command"); err == nil {
		t.Error("no info was taken for some")
	}
}

func FuzzParseState(f *testing.F) {
	f.Add(stateText, statText)
	f.Add("1\n# srv_name", "# svname,scur,stot")
	f.Fuzz(func(t *testing.T, state, stat string) {
		servers, _, err := parseState(state)
		if err != nil {
			return
		}
		_, _ = parseStat(stat, servers)
		for _, s := range servers {
			if s.name == "" || s.weight < 0 || s.weight > 256 || s.sessions < 0 || s.total < 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}
