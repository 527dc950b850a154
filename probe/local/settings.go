package local

import (
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// Settings say what is probed, and with how much work.
type Settings struct {
	Resources []quell.Resource // each must be one of Resources()
	// Budget is the share of a resource that its probes may take: of the processors' time or of the disk's operations. 0 means 0.5%, which is
	// also the limit.
	Budget float64
	// Run is the processor time of one processor probe; 0 means 0.25 ms.
	Run time.Duration
	// Buffer is the memory that a memory probe reads, in bytes. It should be larger than a processor's private caches on any host. 0 means 8
	// MiB.
	Buffer int64
	// Folder is where the disk probe's file of 4 MiB is made. The file's name is removed once it is open, so it cannot be left behind.
	Folder string
	// Writes makes the disk probe write and sync instead of read.
	Writes bool
}

// ResourcesKey names the resources.
func (s *Settings) ResourcesKey() setting.Key {
	const off, auto quell.Resource = "off", "auto"
	known := Resources()
	written := s.Resources
	switch {
	case len(written) == 0:
		written = []quell.Resource{off}
	case len(written) == len(known):
		written = []quell.Resource{auto}
	}
	read := func(words []quell.Resource) {
		switch words[0] {
		case off:
			s.Resources = nil
		case auto:
			s.Resources = known
		default:
			s.Resources = words
		}
	}
	return setting.Opt("probes", setting.Words(written, read, known, off, auto),
		"what the agent probes on its own machine: cpu, memory or disk, a list such as [cpu, disk], auto: all of them, or off")
}

// Keys is the table of the other keys.
func (s *Settings) Keys() setting.Table {
	return setting.Table{
		setting.Opt("budget", setting.Share(&s.Budget).Above(0).Between(0, MostBudget),
			"largest share of each resource (the processors' time, the disk's operations) that its probes may take"),
		setting.Opt("run", setting.Duration(&s.Run).Between(50*time.Microsecond, 10*time.Millisecond), "processor time of one processor probe"),
		setting.Opt("buffer", setting.Size(&s.Buffer).Between(64<<10, 1<<30),
			"what memory probes walk through: more than a processor's private caches, less than what it shares"),
		setting.Opt("folder", setting.Text(&s.Folder), "where the disk probe has its file of 4 MiB: on the disk that the service uses").
			Or("the agent's part of data"),
		setting.Opt("writes", setting.Bool(&s.Writes), "whether the disk probe writes and syncs instead of reading"),
	}
}
