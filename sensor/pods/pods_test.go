package pods

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quellhq/quell"
)

const (
	uid1 = "0a1b2c3d-1111-4222-8333-444455556666"
	uid2 = "0a1b2c3d-1111-4222-8333-444455557777"
	hash = "0a1b2c3d111142228333444455556666" // of a static pod
)

func TestUIDOf(t *testing.T) {
	const kind = "/kubelet.slice/kubelet-kubepods.slice"
	_1 := strings.ReplaceAll(uid1, "-", "_")
	for name, tc := range map[string]struct{ path, uid string }{
		"cgroupfs, guaranteed":            {"/kubepods/pod" + uid1, uid1},
		"cgroupfs, burstable":             {"/kubepods/burstable/pod" + uid1, uid1},
		"cgroupfs, best effort":           {"/kubepods/besteffort/pod" + uid1, uid1},
		"systemd, guaranteed":             {"/kubepods.slice/kubepods-pod" + _1 + ".slice", uid1},
		"systemd, burstable":              {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + _1 + ".slice", uid1},
		"systemd, best effort":            {"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + _1 + ".slice", uid1},
		"kind, cgroupfs":                  {"/docker/8f3c/kubelet/kubepods/burstable/pod" + uid1, uid1},
		"kind, systemd":                   {kind + "/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + _1 + ".slice", uid1},
		"kind in a machine's slice":       {"/system.slice/docker-8f3c.scope" + kind + "/kubelet-kubepods-pod" + _1 + ".slice", uid1},
		"a static pod, cgroupfs":          {"/kubepods/burstable/pod" + hash, hash},
		"a static pod, systemd":           {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + hash + ".slice", hash},
		"a class":                         {"/kubepods/burstable", ""},
		"a class, systemd":                {"/kubepods.slice/kubepods-burstable.slice", ""},
		"a container in a pod":            {"/kubepods/pod" + uid1 + "/4f5e", ""},
		"a container in a pod, systemd":   {"/kubepods.slice/kubepods-pod" + _1 + ".slice/cri-containerd-4f5e.scope", ""},
		"podman's":                        {"/machine.slice/libpod-" + uid1 + ".scope", ""},
		"of that name, elsewhere":         {"/user.slice/pod" + uid1, ""},
		"of that name, elsewhere, slice":  {"/user.slice/user-pod" + _1 + ".slice", ""},
		"no uid":                          {"/kubepods/podinfo", ""},
		"too long":                        {"/kubepods/pod" + uid1 + "0", ""},
		"capital letters":                 {"/kubepods/pod" + strings.ToUpper(uid1), ""},
		"hyphens in other places":         {"/kubepods/pod" + strings.Replace(uid1, "0a1b2c3d-1", "0a1b2c3-d1", 1), ""},
		"the machine":                     {"/", ""},
		"nothing":                         {"", ""},
		"a slice of the name":             {"/-pod" + _1 + ".slice", ""},
		"another class":                   {"/kubepods/premium/pod" + uid1, ""},
		"a class twice, as no kubelet":    {"/kubepods/burstable/besteffort/burstable/pod" + uid1, ""},
		"a slice of another prefix's end": {"/x.slice/notkubepods2-pod" + _1 + ".slice", ""},
	} {
		uid, ok := UIDOf(tc.path)
		if ok != (tc.uid != "") || ok && uid != tc.uid {
			t.Errorf("%s: %s: %q, %v", name, tc.path, uid, ok)
		}
	}
}

func FuzzUIDOf(f *testing.F) {
	f.Add("/kubepods/burstable/pod" + uid1)
	f.Add("/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid1, "-", "_") + ".slice")
	f.Fuzz(func(t *testing.T, path string) {
		if uid, ok := UIDOf(path); ok && !isUID(uid) {
			t.Errorf("%q: %q", path, uid)
		}
	})
}

// machine is a made-up machine of 4 processors with groups of version 2; used is the processor time of each group, in seconds.
func machine(seconds float64, used map[string]float64) fstest.MapFS {
	total := int(100 * 4 * seconds)
	each := strings.Repeat("cpu0 0 0 0 0 0 0 0 0 0 0\n", 4)
	files := fstest.MapFS{
		"proc/self/mountinfo":                           {Data: []byte("31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")},
		"proc/stat":                                     {Data: fmt.Appendf(nil, "cpu %d 0 0 %d 0 0 0 0 0 0\n%s", total/2, total-total/2, each)},
		"sys/fs/cgroup/cgroup.controllers":              {Data: []byte("cpu memory\n")},
		"sys/fs/cgroup/system.slice/x.service/cpu.stat": {Data: []byte("usage_usec 1\n")},
	}
	for group, s := range used {
		folder := "sys/fs/cgroup" + group
		files[folder+"/cpu.stat"] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"usage_usec %d\nuser_usec %d\nsystem_usec 0\nnr_periods 10\nnr_throttled 5\nthrottled_usec %d\n", int(s*1e6), int(s*1e6), int(s*1e5))}
		files[folder+"/cpu.max"] = &fstest.MapFile{Data: []byte("200000 100000\n")}
		files[folder+"/cpu.pressure"] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"some avg10=0 avg60=0 avg300=0 total=%d\nfull avg10=0 avg60=0 avg300=0 total=0\n", int(s*2e5))}
		files[folder+"/cgroup.threads"] = &fstest.MapFile{Data: []byte("0\n")} // tasks of another namespace
	}
	return files
}

// write writes a machine's files below a folder. Those that are open stay the same files, as the kernel's do.
func write(t *testing.T, folder string, files fstest.MapFS) {
	t.Helper()
	for name, file := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, file.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSample(t *testing.T) {
	one := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid1, "-", "_") + ".slice"
	two := "/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid2, "-", "_") + ".slice"
	web, noisy := Pod{"shop", "web-1", uid1}, Pod{"batch", "noisy", uid2}
	folder := t.TempDir()
	write(t, folder, machine(100, map[string]float64{one: 10, two: 50}))
	node, err := NewNode(os.DirFS(folder))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1000, 0)
	first, failures := node.Sample(start, []Pod{web, noisy})
	if len(first) != 0 || len(failures) != 0 {
		t.Fatalf("at first: %v, %v", first, failures)
	}
	write(t, folder, machine(110, map[string]float64{one: 15, two: 70}))
	got, failures := node.Sample(start.Add(10*time.Second), []Pod{web, noisy, {"shop", "gone", hash}})
	if len(failures) != 1 || failures[0].Sensor != "pod shop/gone" {
		t.Errorf("failures %v", failures)
	}
	o, ok := got[uid1]
	if !ok || o.Sched == nil {
		t.Fatalf("observations %+v", got)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("%s is %v, wanted %v", what, got, want)
		}
	}
	near("processor time", o.Sched.RunS, 5)
	near("processors", o.Sched.Cores, 2) // its quota
	near("utilisation", o.Utilization[quell.CPU], 5.0/20)
	near("pressure", o.Pressure["cpu"], 0.1)
	if o.Sched.ThrottledS == nil || !o.Sched.Group || math.Abs(*o.Sched.ThrottledS-0.5) > 1e-6 {
		t.Errorf("scheduling %+v", o.Sched)
	}
	if top := o.Top[quell.CPU]; top.Name != "batch/noisy" || math.Abs(top.Use-0.5) > 1e-6 {
		t.Errorf("the pod that uses most is %+v", top)
	}
	if top := got[uid2].Top[quell.CPU]; top.Name != "shop/web-1" {
		t.Errorf("for the noisy pod, %+v", top)
	}
	reading := quell.Reading{Service: "web", Instance: web.Name, Source: quell.FromAgent, Sender: web.Name, Observation: o}
	if err := reading.Validate(); err != nil {
		t.Error(err)
	}
	// A pod that is new has nothing to compare with, and one that left is forgotten.
	write(t, folder, machine(120, map[string]float64{two: 70.5}))
	if err := os.RemoveAll(filepath.Join(folder, "sys/fs/cgroup", one)); err != nil {
		t.Fatal(err)
	}
	if got, _ := node.Sample(start.Add(20*time.Second), []Pod{noisy}); len(got) != 1 || got[uid2].Top != nil {
		t.Errorf("%+v", got)
	}
}

// TestTenants reads pods as a policy for control groups does.
func TestTenants(t *testing.T) {
	group := "/kubepods/burstable/pod" + uid1
	folder, gone := t.TempDir(), error(nil)
	write(t, folder, machine(100, map[string]float64{group: 10}))
	tenants, err := NewTenants(os.DirFS(folder), func() ([]Pod, error) { return []Pod{{"shop", "web-1", uid1}}, gone })
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1000, 0)
	tenants.Sample(start)
	write(t, folder, machine(110, map[string]float64{group: 15}))
	gone = errors.New("the API server is away")
	s, failures := tenants.Sample(start.Add(10 * time.Second))
	if len(failures) != 1 || failures[0].Err.Error() != gone.Error() {
		t.Errorf("failures %v", failures)
	}
	if len(s.Instances) != 1 || s.Machine == nil {
		t.Fatalf("%+v", s)
	}
	if in := s.Instances[0]; in.ID != "web-1" || in.Limits[quell.CPU] != 2 || in.Within != path.Dir(group) ||
		math.Abs(in.Observation.Sched.RunS-5) > 1e-6 {
		t.Errorf("%+v", in)
	}
}

// Groups of version 1 are in several trees, and a kubelet in a container has its own root.
func TestVersionOne(t *testing.T) {
	group := "/docker/8f3c/kubelet/kubepods/burstable/pod" + uid1
	at := func(seconds int) fstest.MapFS {
		files := machine(float64(seconds), nil)
		files["proc/self/mountinfo"] = &fstest.MapFile{Data: []byte(
			"32 22 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n")}
		folder := "sys/fs/cgroup/cpu,cpuacct" + group
		files[folder+"/cpuacct.usage"] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d\n", seconds*1e9)}
		files[folder+"/cpu.cfs_quota_us"] = &fstest.MapFile{Data: []byte("200000\n")}
		files[folder+"/cpu.cfs_period_us"] = &fstest.MapFile{Data: []byte("100000\n")}
		files[folder+"/cpu.stat"] = &fstest.MapFile{Data: []byte("nr_periods 10\nnr_throttled 0\nthrottled_time 0\n")}
		return files
	}
	folder := t.TempDir()
	write(t, folder, at(10))
	node, err := NewNode(os.DirFS(folder))
	if err != nil {
		t.Fatal(err)
	}
	pods := []Pod{{"shop", "web-1", uid1}}
	if _, failures := node.Sample(time.Unix(10, 0), pods); len(failures) > 0 {
		t.Fatal(failures)
	}
	write(t, folder, at(20))
	got, failures := node.Sample(time.Unix(20, 0), pods)
	if o := got[uid1]; len(failures) > 0 || o.Sched == nil || math.Abs(o.Utilization[quell.CPU]-0.5) > 1e-6 {
		t.Errorf("%+v, %v", o, failures)
	}
}

func TestNoControlGroups(t *testing.T) {
	node, err := NewNode(fstest.MapFS{"proc/self/mountinfo": {Data: []byte("\n")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, failures := node.Sample(time.Unix(0, 0), nil); len(failures) != 1 {
		t.Errorf("%v", failures)
	}
}
