package local

import (
	"time"

	"github.com/quellhq/quell"
)

var diskKind = kind{
	resource: quell.Disk,
	by:       func(o *Options) quell.Probing { return quell.Probing{Bytes: blockBytes, Write: o.Writes} },
	purse: func(o *Options) purse {
		rate := 1.0 // a second, where nobody said what the disk can do
		if o.Operations > 0 {
			rate = o.Budget * o.Operations
		}
		return purse{perSecond: rate, most: o.rate(), cost: 1}
	},
	open: openDisk,
}

const (
	blockBytes = 4096
	fileBytes  = 4 << 20
	// spareBytes must be free on the file system, the probe's file aside: a nearly full one is left alone.
	spareBytes = 64 << 20
	// shortOperation is the time of one operation of a fast disk, which the clock must be able to measure.
	shortOperation = 100 * time.Microsecond
)
