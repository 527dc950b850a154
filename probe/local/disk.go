package local

import (
	"time"

	"github.com/quellhq/quell"
)

var diskKind = kind{
	resource: quell.Disk,
	by:       func(o *Options) quell.Probing { return quell.Probing{Bytes: blockBytes, Write: o.Writes} },
	allowance: func(o *Options) allowance {
		rate := 1.0 // one probe per second if the disk's operations per second are not configured
		if o.Operations > 0 {
			rate = o.Budget * o.Operations
		}
		return allowance{perSecond: rate, most: o.rate(), cost: 1}
	},
	open: openDisk,
}

const (
	blockBytes = 4096
	fileBytes  = 4 << 20
	// spareBytes must be free on the file system in addition to the probe's file; on a fuller one the disk is not probed.
	spareBytes = 64 << 20
	// shortOperation is the time of one operation on a fast disk. The clock must be able to measure it.
	shortOperation = 100 * time.Microsecond
)
