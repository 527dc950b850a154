// Package config reads Quell's configuration: YAML, strictly, into typed values. All mistakes in a file are reported
// together, each with its place and what to do.
//
// Tables of keys (keys_*.go) say what a file may hold; config/keys reads a file by such a table; checks.go has the
// rules between keys; Reference prints the tables.
package config

import (
	"cmp"
	"path/filepath"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
	"github.com/quellhq/quell/limit"
	"github.com/quellhq/quell/loadgen"
	"github.com/quellhq/quell/middleware"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/probe/local"
	"github.com/quellhq/quell/scaler"
	"github.com/quellhq/quell/sensor"
	"github.com/quellhq/quell/sensor/credits"
	"github.com/quellhq/quell/sensor/served"
	"github.com/quellhq/quell/setting"
)

// File is a configuration. Every process of a service reads the same file and uses some of its sections. A relative path in the
// file starts at the file's folder; here it has that folder in front.
type File struct {
	Path     string // path of the configuration file
	Service  quell.Service
	Services []string // files of services that share everything below that is no service's own; empty: this file is that of one service
	Models   string   // path of models.json, ModelsLearn or ModelsOff; empty: ModelsLearn if the policy can learn, else ModelsOff
	Learn    bool     // Models is a path, and learning goes on from these models
	Data     string   // folder of all files that Quell keeps
	Listen   string   // address of the controller's metrics and health; empty: off
	Page     Page     // of the controller, at Listen
	KEDA     KEDA     // advice for KEDA
	Web      string   // path of a web configuration file for all HTTP of controller, balancer and agent; empty: plain HTTP
	Bus      Bus
	Balancer Balancer
	Scaler   Scaler
	Probe    Probe
	Agent    Agent
	Train    Train

	values map[string]string // value of every key, as text
	keys   setting.Table     // the declarations of all keys
	places *setting.Decoder
	shared *File // the file that names this service beside others; nil: it is alone
}

// KEDA configures the answers to KEDA's external scaler.
type KEDA struct {
	Listen string // empty: off
	TLS    TLS
}

// Page configures the controller's web page.
type Page struct {
	Hosts []string // names under which browsers may ask for it, beside localhost, the machine's name and addresses
}

// Words that File.Models may hold instead of a path.
const (
	ModelsLearn = "learn" // nothing was trained: models are learned from the service's readings
	ModelsOff   = "off"   // no models: weights stay equal
)

// Trained returns the path of trained models, "" if the file names none.
func (f *File) Trained() string {
	if f.Models == ModelsLearn || f.Models == ModelsOff {
		return ""
	}
	return f.Models
}

// Learns returns whether models are learned from the service's readings, beginning with the trained ones if there are any.
func (f *File) Learns() bool {
	switch f.Models {
	case "":
		return table.All.Learns(f.Service.Policy.Name)
	case ModelsOff:
		return false
	}
	return f.Learn || f.Models == ModelsLearn
}

// Bus configures the message bus. If a URL is given, the processes use that existing server; otherwise the controller runs one.
type Bus struct {
	URL           string
	Listen        string // address of the controller's own server
	Credentials   string // file of this process's credential; empty: the one in Keyring, if any
	Join          string // file of a join token, with which an agent gets its credential
	Proof         Proof  // what an agent shows in place of a join token; empty: nothing
	ProofToken    string // file of the token that is its proof
	Token         string
	TokenFile     string
	TokenCommands bool // whether a client with the token may also send an operator's commands
	TLS           TLS
	JournalBytes  int64
	Replicas      int    // copies of each store in a cluster; 0: as many as possible, up to 3
	StoreDir      string // folder of the stores of the controller's own server; inside File.Data
	Keyring       string // folder of the controller's key and this machine's credentials; inside File.Data
	Own           string // the service among several whose credentials have a folder of their own in Keyring; empty: it is alone
}

// Proof is a kind of proof that a platform gives its machines.
type Proof string

// The kinds of proofs.
const (
	ProofAWS        Proof = "aws"        // the instance identity document of EC2
	ProofKubernetes Proof = "kubernetes" // the token of a pod's service account
)

// TLS names the PEM files for connections with certificates; an empty name means that there is no such file.
type TLS struct{ CA, Cert, Key string }

// Drivers is the table of the balancers, the scalers, the servers with settings and the providers of credits that a configuration can name.
// The first balancer and the first scaler are the defaults.
type Drivers struct {
	Balancers []balancer.Kind
	Scalers   []scaler.Kind
	Servers   []middleware.Kind
	Credits   []credits.Kind
}

// Balancer configures what distributes requests over the instances.
type Balancer struct {
	Kind     string
	Name     string // distinguishes several balancers
	Drain    time.Duration
	Classes  balancer.Classes
	Settings balancer.Settings // of the kind
}

// ownProcess is a balancer that is one of Quell's own processes: it reads the configuration itself, and it measures probes.
type ownProcess interface {
	// Process returns the keys that the balancer reads again at SIGHUP, keys below them that it nevertheless reads only at its start,
	// and the keys that the controller reads as well. The balancer reads all other keys at its start.
	Process() (again, once, shared []string)
}

// probes returns whether the balancer can measure probes.
func (b Balancer) probes() bool {
	_, own := b.Settings.(ownProcess)
	return own
}

// Scaler configures what starts and stops instances.
type Scaler struct {
	Kind     string
	Settings scaler.Settings // of the kind
}

// Listed returns the instances of a fixed group, one whose size never changes, and whether the group is fixed. In the file the
// instances are the list scaler.instances.
func (s Scaler) Listed() (members []quell.Member, fixed bool) {
	list, fixed := s.Settings.(interface{ Listed() []quell.Member })
	if !fixed {
		return nil, false
	}
	return list.Listed(), true
}

// onlyLists is a scaler that reads a list which others keep: instances come and go, but Quell starts and stops none.
type onlyLists interface{ OnlyLists() }

// Changes returns whether Quell may start and stop instances.
func (s Scaler) Changes() bool {
	_, fixed := s.Listed()
	_, reads := s.Settings.(onlyLists)
	return !fixed && !reads
}

// Prober is the process that measures probes.
type Prober string

// The balancer measures probes, because the service's traffic comes from there. If it cannot, the controller measures them.
const (
	FromBalancer   Prober = "balancer"
	FromController Prober = "controller"
)

// Probe configures the measurement that detects interference.
type Probe struct {
	Size      int64   // bytes of one download; 0: computed from Budget
	Count     int     // how many downloads probe an instance in each sampling period
	Budget    float64 // share of an instance's network capacity that probes may use
	Token     string
	TokenFile string
	Listen    string // address of the agent's probe server
	From      Prober
	Timeout   time.Duration
	Capacity  float64 // bit/s of an instance's network, for the budget; 0: not given
}

// Agent configures the process on an instance.
type Agent struct {
	Instance  string                     // id of the instance; empty: given on the command line
	Capacity  map[quell.Resource]float64 // network in bit/s, cpu in cores, disk in operations/s, memory in bytes/s; else as detected
	Interface string                     // name of the network interface; empty: that of the default route, or the only one that has routes
	Root      string                     // folder below which sensors find /proc and /sys
	Cgroup    string                     // control group whose processor time counts as the instance's; empty: the whole machine
	Counters  bool                       // whether to count cycles, instructions and cache misses
	Training  bool                       // whether quell train --on may use this machine
	Metrics   string                     // empty: off
	Reports   string                     // where balancers get load reports; empty: off
	Secure    ReportsTLS                 // of that address
	DiskBytes int64                      // bytes per second that the disk can read and write; 0: not known
	Requests  served.Settings            // without a URL the service is not asked
	Probing   local.Settings             // of what the agent probes on its own machine; empty Folder: AgentDir
	Policy    AgentPolicy
	Servers   []middleware.Server // whose parameters plans may set
	Credits   Credits
}

// ReportsTLS names files in PEM form. Without a certificate there is no TLS.
type ReportsTLS struct {
	Cert, Key string
	ClientCA  string // empty: clients need no certificate
}

// Credits configures who shows the machine's balances of credits. Without a kind nobody does.
type Credits struct {
	Kind     string
	Settings credits.Settings // of the kind
}

// AgentPolicy configures a policy that the agent runs itself, for control groups of its own machine.
type AgentPolicy struct {
	Chosen   quell.Policy // a policy for control groups; without a name there is none
	Sampling time.Duration
	Groups   []sensor.Group
	Progress string // path of the socket at which programs report their work; empty: none
	Port     int    // TCP port of the service whose connections are counted; 0: none
	Records  string // folder that says what was there before the policy's limits; all agents of a machine use the same
	TakeOver bool   // also limit groups that have a limit of somebody else's, and put it back in the end
}

// usualGroups are the control groups that systemd makes (for services, for containers and virtual machines, and for users), and the groups
// that quell run makes.
func usualGroups() []sensor.Group {
	return []sensor.Group{{Path: "/system.slice/*"}, {Path: "/machine.slice/*"}, {Path: "/user.slice/*"}, {Path: "/quell/*"}}
}

// ProbeDir is the folder in which the disk probe has its file.
func (f *File) ProbeDir() string { return cmp.Or(f.Agent.Probing.Folder, f.AgentDir()) }

// AgentDir is the folder in which the agent's policy keeps its files.
func (f *File) AgentDir() string {
	if f.shared != nil {
		return f.shared.AgentDir()
	}
	return filepath.Join(f.Data, "agent")
}

// Local returns whether the file names no service. Such a file is only for agents that run a policy on their own machine.
func (f *File) Local() bool { return f.Service.Name == "" && len(f.Services) == 0 }

// The plans of a training.
const (
	QuickPlan    TrainPlan = "quick"
	FullPlan     TrainPlan = "full"
	AdaptivePlan TrainPlan = "adaptive"
	CustomPlan   TrainPlan = "custom"
	// AlternatingPlan is for detectors: the interferer comes and goes during each run.
	AlternatingPlan TrainPlan = "alternating"
)

// TrainPlan selects what a training measures. Package train defines the plans.
type TrainPlan string

// The testbeds of a training.
const (
	EmulatedTestbed Testbed = "emulated"
	KernelTestbed   Testbed = "kernel"
)

// Testbed is the kind of machines that a training uses.
type Testbed string

// Train configures how models are trained on a testbed's hosts. The fields from Levels to Confidence are for a custom plan; the
// other plans have values of their own.
type Train struct {
	Resource     quell.Resource // resource to train; default: the policy's
	Plan         TrainPlan
	Levels       []float64     // utilisations, increasing
	Interference []float64     // utilisations of the interferer, increasing, beginning with 0
	Run          time.Duration // length of one run
	Repeat       int           // smallest number of runs of a level
	MaxRepeat    int           // largest number of runs of a level
	Interval     float64       // a level is done when its confidence interval is at most this wide, as a share of the mean
	Confidence   float64       // confidence of that interval, as a fraction
	Budget       int           // plan adaptive: largest number of runs
	Bound        float64       // plan adaptive: stop when the capacity's standard error is at most this utilisation; 0: never
	Testbed      Testbed
	Hosts        int     // number of machines used at once
	Network      float64 // bit/s of a host's link
	FileSize     int64   // bytes
	Arrivals     loadgen.Process
	Seed         uint64
}

// Defaults returns the configuration of an empty file. The required keys have no value in it.
func (t Drivers) Defaults() File {
	return File{
		Service:  quell.DefaultService(),
		Data:     "quell-data",
		Listen:   "127.0.0.1:9464",
		Bus:      Bus{Listen: "127.0.0.1:4222", ProofToken: "/var/run/secrets/quell/token", JournalBytes: 64 << 20},
		Balancer: Balancer{Kind: t.Balancers[0].Name, Name: "balancer", Drain: 30 * time.Second, Settings: t.Balancers[0].Defaults()},
		Scaler:   Scaler{Kind: t.Scalers[0].Name, Settings: t.Scalers[0].Defaults()},
		Probe: Probe{
			Budget: 0.02, Listen: "127.0.0.1:9466", Timeout: 2 * time.Second,
		},
		Agent: Agent{
			Capacity: map[quell.Resource]float64{}, Root: "/", Counters: true, Requests: served.Settings{Unit: time.Second},
			Policy:  AgentPolicy{Sampling: time.Second, Groups: usualGroups(), Records: limit.DefaultRecords},
			Probing: local.Settings{Budget: local.MostBudget, Run: local.UsualRun, Buffer: local.UsualBuffer},
		},
		Train: Train{
			Plan: QuickPlan, Run: 10 * time.Second, Repeat: 3, MaxRepeat: 5, Interval: 0.05, Confidence: 0.95, Budget: 90, Bound: 0.02,
			Testbed: EmulatedTestbed, Hosts: 4, Network: 40e6, FileSize: 50_000, Arrivals: loadgen.Poisson, Seed: 1,
		},
	}
}
