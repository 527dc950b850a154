package sim

import (
	"math"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// The signs of contention that a machine shows beside its utilisation follow from what its stations hold. Each has a law:
//
//   - Run queues: a piece of the service's work at the processors runs or waits. So the time that tasks waited is the number of pieces,
//     integrated over time, less the processor time that they got.
//   - iowait: a processor counts as waiting for a disk while it is idle and a task that ran on it waits for the disk. Processor and disk
//     are taken as independent, as in a product-form network of queues. So the share is that of the time in which a piece waits at the
//     disk, limited by the number of pieces for each processor, times the idle share of the processors.
//   - Connect time: the answer to a new connection is one small packet. A link that is shared fairly sends a packet of each open flow
//     before it. So the time is that of a packet for each piece at the link.
//   - Retransmissions: every flow keeps a window of segments in the queue before the link. What does not fit is dropped and sent again.
//     So the dropped share of a flow's segments is the part of all windows that exceeds the queue.
//   - Cycles per instruction are those of work that began in the window: neighbours in the caches lengthen them as they lengthen processor
//     time. 1 stands for a machine without neighbours. A workload that the caches do not slow (cache_stretch) has no such counter.
//   - User and system time are in the proportion that the scenario gives (workload.system). Neighbours in the caches lengthen them
//     (cache_stretch).
//
// Steal is 0: the neighbours of these machines share its processors with its own tasks, so the service waits in the run queues.
const (
	packetBytes    = 1500
	segmentBytes   = 1460
	windowSegments = 10 // the initial window of a connection (RFC 6928)
	queueSegments  = 64 // a shallow buffer, about 96 KB
)

// lost is how many segments of an answer of this size are sent again if it meets other flows at the link.
func lost(bytes float64, others int) float64 {
	waiting := float64((others + 1) * windowSegments)
	return math.Ceil(bytes/segmentBytes) * math.Max(0, 1-queueSegments/waiting)
}

// connectMS is how long it takes now to connect to a host, in milliseconds; false if the workload does not use the network.
func (w *world) connectMS(hostIndex int) (ms float64, ok bool) {
	h := &w.hosts[hostIndex]
	k := kindOf(quell.Network)
	if h.stations[k] == nobody {
		return 0, false
	}
	s := &w.stations[h.stations[k]]
	return 1000 * (headerBytes + packetBytes*float64(s.pieces())) / (h.perSecond[k] * s.share), true
}

// signs are what a host's stations have counted so far.
type signs struct {
	held, some [kinds]float64 // by resource; see station
	lost       float64
	asked, ran float64 // processor time of requests without neighbours in the caches, and with them, in seconds
}

// signs reads a host's counters. It does not advance the stations: reading then changes no later rounding.
func (w *world) signs(hostIndex int) (x signs) {
	h := &w.hosts[hostIndex]
	for k, at := range h.stations {
		if at == nobody {
			continue
		}
		s := w.stations[at]
		s.advance(w.now)
		x.held[k], x.some[k] = s.held, s.some
	}
	x.lost, x.asked, x.ran = h.lost, h.asked, h.ran
	return x
}

// machineSigns adds to an observation what a machine's sensors show of contention in a window: from and to are the counters at its begin
// and end. The utilisation must be set.
func machineSigns(o *quell.Observation, load *scenario.Workload, cores float64, from, to signs) {
	cpu, disk := kindOf(quell.CPU), kindOf(quell.Disk)
	busy, ok := o.Utilization[quell.CPU]
	if ok {
		run := busy * cores * o.WindowS
		wait := math.Max(0, to.held[cpu]-from.held[cpu]-run)
		some, held := to.some[disk]-from.some[disk], to.held[disk]-from.held[disk]
		blocked := math.Min(1, math.Min(some, held/cores)/o.WindowS) * math.Max(0, 1-busy)
		o.CPU = &quell.CPUTime{User: busy * (1 - load.System), System: busy * load.System, IOWait: &blocked}
		o.Sched = &quell.Sched{Cores: cores, Group: true, RunS: run, WaitS: &wait}
	}
	if asked := to.asked - from.asked; load.CacheStretch > 0 && asked > 0 {
		o.Counters = map[string]float64{quell.CounterCPI: (to.ran - from.ran) / asked}
	}
	if _, ok := o.Utilization[quell.Network]; ok {
		o.TCP = map[string]float64{"retransmit_rate": math.Max(0, to.lost-from.lost) / o.WindowS}
	}
}
