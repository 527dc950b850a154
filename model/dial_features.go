package model

import (
	"maps"
	"math"

	"github.com/quellhq/quell"
)

// The features that the classifier tests. A ratio is the measured value over that of an undisturbed instance with the same load.
const (
	userRatio      = "cpu_user_ratio"
	systemRatio    = "cpu_system_ratio"
	ioWait         = "iowait"
	ioWaitRatio    = "iowait_ratio"
	retransmitRate = "retransmit_rate"
	connectP90     = "connect_ms_p90"
	connectRatio   = "connect_ratio"
	cpuWait        = "cpu_wait" // seconds in run queues for a second of processor time, without the time in which the own quota was used up
	cpuWaitRatio   = "cpu_wait_ratio"
)

// Features whose value is expected to follow from the rate of requests (keys of Dial.Expected).
const (
	expectedUser   = "cpu_user"
	expectedSystem = "cpu_system"
)

// NotContended is the classifier's class of an instance that suffers from no neighbour. The other classes are the resources.
const NotContended = "none"

var (
	dialFeatures = []string{connectP90, connectRatio, systemRatio, userRatio, cpuWait, cpuWaitRatio, ioWait, ioWaitRatio,
		retransmitRate}
	dialClasses      = []string{string(quell.CPU), string(quell.Disk), string(quell.Memory), string(quell.Network), NotContended}
	dialExpectations = []string{expectedSystem, expectedUser}
)

// growing is a feature that grows with the own use of a resource as queues do, and the name of its ratio to the expected value.
type growing struct {
	feature, ratio string
	over           quell.Resource
	usual          float64             // the expected value counts as at least this part of the usual one
	least          float64             // it also counts as at least this, unless nothing is expected
	chance         func(n int) float64 // what chance adds to the ratio, or takes off, in a window with n requests
}

// minWait is a share of the time: of the window for iowait, of processor time for cpu_wait. Shorter waits harm nobody, even if they are
// many times as long as expected.
const minWait = 0.01

// The time to connect is a percentile of a few delays, each of a few packets. At low use the curve expects almost none, and one packet in
// front would be many times as much. On a shaped link the time also jumps at some use, which the curve cannot follow. So at least the usual
// time is expected. The two other features are sums over a window. At low use the curves expect almost nothing of them, too, so at
// least minWait is expected.
var curves = []growing{
	{connectP90, connectRatio, quell.Network, 1, 0, chanceOfP90},
	{cpuWait, cpuWaitRatio, quell.CPU, 0, minWait, chanceOfSum},
	{ioWait, ioWaitRatio, quell.Disk, 0, minWait, chanceOfSum},
}

// Expected is what a machine is expected to use for its requests: a linear regression without coefficients below 0 (DIAL, section II-B2).
type Expected struct {
	Intercept  float64            `json:"intercept"`
	PerRequest map[string]float64 `json:"per_request"` // by class of requests, for one request per second; OtherClasses stands for all classes that are not listed
}

// OtherClasses is the key for all requests whose class is not listed.
const OtherClasses = "*"

// At returns what is expected at a rate of requests per second. byClass has the rates of those requests whose class is known.
func (e Expected) At(rate float64, byClass map[string]float64) float64 {
	use := e.Intercept
	for _, class := range sortedKeys(byClass) {
		if per, known := e.PerRequest[class]; known && class != OtherClasses {
			use += per * byClass[class]
			rate -= byClass[class]
		}
	}
	return use + e.PerRequest[OtherClasses]*math.Max(rate, 0)
}

// minExpected is a share of the processors. If an expected value is smaller, a ratio to it means nothing.
const minExpected = 0.005

// Features returns the classifier's features of an observation. A feature that was not measured is absent. So are a ratio to an expected
// processor time below minExpected, and a value above maxValue, which cannot be right.
func (s *Dial) Features(o *quell.Observation) map[string]float64 {
	features := map[string]float64{}
	if c := o.CPU; c != nil {
		if c.IOWait != nil {
			features[ioWait] = *c.IOWait
		}
		s.ratio(features, userRatio, expectedUser, c.User, o)
		s.ratio(features, systemRatio, expectedSystem, c.System, o)
	}
	for _, name := range []string{retransmitRate, connectP90} {
		if v, measured := o.TCP[name]; measured {
			features[name] = v
		}
	}
	if wait, ok := waits(o.Sched); ok {
		features[cpuWait] = wait
	}
	for _, c := range curves {
		value, measured := features[c.feature]
		use, known := o.Utilization[c.over]
		q, learned := s.Curves[c.feature]
		if !measured || !known || !learned {
			continue
		}
		if expected := math.Max(q.MS(use), c.usual*s.Usual[c.feature]); expected > 0 {
			features[c.ratio] = beyondChance(value/math.Max(expected, c.least), o, c.chance)
		}
	}
	maps.DeleteFunc(features, func(_ string, v float64) bool { return !(math.Abs(v) <= maxValue) })
	return features
}

// minRun is in seconds. In a window with less processor time than this, waiting for a processor means nothing.
const minRun = 0.001

// waits returns for how many seconds tasks waited for a processor, for each second in which they ran. Time in which their own quota was
// used up does not count.
func waits(s *quell.Sched) (perSecond float64, ok bool) {
	if s == nil || s.WaitS == nil || s.RunS < minRun {
		return 0, false
	}
	wait := *s.WaitS
	if s.ThrottledS != nil {
		wait = math.Max(0, wait-*s.ThrottledS)
	}
	return wait / s.RunS, true
}

func (s *Dial) ratio(features map[string]float64, name, of string, use float64, o *quell.Observation) {
	e, ok := s.Expected[of]
	if !ok || o.RequestRate == nil {
		return
	}
	if expected := e.At(*o.RequestRate, o.RequestRates); expected >= minExpected {
		features[name] = beyondChance(use/expected, o, chanceOfSum)
	}
}

// beyondChance moves a ratio towards 1 by what chance explains: an instance is judged in those windows in which its requests happen to need
// much. If the number of requests is unknown, nothing is taken off.
func beyondChance(ratio float64, o *quell.Observation, chance func(n int) float64) float64 {
	if o.LatencyMS == nil || o.LatencyMS.N < 1 {
		return ratio
	}
	return 1 + math.Copysign(math.Max(0, math.Abs(ratio-1)-chance(o.LatencyMS.N)), ratio-1)
}

// chanceOfSum is for what n requests need together. It differs from n times the mean by about a share of 1 / sqrt(n), because requests
// differ from each other about as much as their mean. Chance exceeds three times that in 0.13% of windows.
func chanceOfSum(n int) float64 { return 3 / math.Sqrt(float64(n)) }

// chanceOfP90 is for the p90 of n delays. They are taken as exponentially distributed, as delays in queues are. It is exceeded as rarely.
func chanceOfP90(n int) float64 {
	const confidence, tail = 0.9987, 0.434
	return tail * math.Log(0.1/(1-quantileOfP90(n, confidence)))
}
