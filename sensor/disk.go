package sensor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/cgroup"
)

// Disk measures the service's own utilisation of the disk: its operations and its bytes, each over what the disk can do; the larger share
// counts, and of several disks the busiest. If a control group is set, only that group's operations and bytes count.
type Disk struct {
	opts       Options
	operations *float64 // per second, as configured
	last       *diskReading
}

// diskReading is the state of the counters at one moment, by disk as "8:0".
type diskReading struct {
	at    time.Time
	disks map[string]diskUse
}

// diskUse is what a disk has done so far, reads and writes together.
type diskUse struct{ operations, bytes uint64 }

// NewDisk returns a sensor of the machine's disks below o.Root, or, if o.Cgroup is set, of what that group does on them.
func NewDisk(o Options) (*Disk, error) {
	operations, err := o.configured(quell.Disk)
	if err != nil {
		return nil, err
	}
	if o.DiskBytes < 0 {
		return nil, &quell.UserError{Err: fmt.Errorf("agent.capacity.disk_bytes: %v is no capacity", o.DiskBytes)}
	}
	return &Disk{opts: o, operations: operations}, nil
}

// Name is "disk".
func (d *Disk) Name() string { return "disk" }

// Sample implements Sensor.
func (d *Disk) Sample(now time.Time, obs *quell.Observation) error {
	if d.operations == nil && d.opts.DiskBytes == 0 {
		return &quell.UserError{Err: errors.New("agent.capacity.disk is not known, so the own use of the disk is not told: set it to the " +
			"operations per second of the disk, or agent.capacity.disk_bytes to its bytes per second")}
	}
	before := d.last
	d.last = nil // after a failure below, the next call only sets the starting point: a reading covers exactly one window
	disks, err := d.read()
	if err != nil {
		return err
	}
	d.last = &diskReading{at: now, disks: disks}
	if before == nil {
		return nil
	}
	share, err := d.share(before, d.last)
	if err != nil {
		return err
	}
	return setUtilization(obs, quell.Disk, share, 1, "of the disk")
}

// share returns the share of the busiest disk that was used between two readings. A disk that was added in between has no share yet.
func (d *Disk) share(before, after *diskReading) (most float64, err error) {
	seconds := after.at.Sub(before.at).Seconds()
	if seconds <= 0 {
		return 0, errors.New("no time passed since the last reading: reading skipped")
	}
	for _, name := range slices.Sorted(maps.Keys(after.disks)) {
		was, ok := before.disks[name]
		if !ok {
			continue
		}
		is := after.disks[name]
		if is.operations < was.operations || is.bytes < was.bytes {
			return 0, fmt.Errorf("the counters of disk %s went back: reading skipped", name)
		}
		if d.operations != nil {
			most = max(most, float64(is.operations-was.operations)/seconds / *d.operations)
		}
		if d.opts.DiskBytes > 0 {
			most = max(most, float64(is.bytes-was.bytes)/seconds/d.opts.DiskBytes)
		}
	}
	return most, nil
}

// read reads the counters of the machine or of the control group.
func (d *Disk) read() (map[string]diskUse, error) {
	if d.opts.Cgroup == "" {
		text, err := fs.ReadFile(d.opts.Root, "proc/diskstats")
		if err != nil {
			return nil, fmt.Errorf("reading disk counters: %w", err)
		}
		return parseDiskstats(text)
	}
	disks, err := d.readGroup()
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; the kernel does not count the group's disk operations (controller io or blkio)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("disk operations of control group %s (agent.cgroup): %w", d.opts.Cgroup, err)
	}
	return disks, nil
}

// diskTree finds the hierarchy in which the kernel counts disk operations.
func diskTree(root fs.FS) (trees *cgroup.Trees, tree cgroup.Tree, err error) {
	if trees, err = cgroup.Find(root); err != nil {
		return nil, tree, err
	}
	tree, ok := trees.Of("blkio")
	if !ok {
		return nil, tree, errors.New("the kernel offers no control groups for disks")
	}
	return trees, tree, nil
}

func (d *Disk) readGroup() (map[string]diskUse, error) {
	trees, tree, err := diskTree(d.opts.Root)
	if err != nil {
		return nil, err
	}
	group := d.opts.Cgroup
	if group == OwnCgroup {
		own, err := cgroup.Own(d.opts.Root, "proc/self/cgroup")
		if err != nil {
			return nil, err
		}
		var ok bool
		if group, ok = own[tree.Controller]; !ok {
			return nil, errors.New("the own group is of no hierarchy for disks")
		}
		if folder := ownProcesses(trees, own); folder != "" {
			return d.readProcesses(folder)
		}
	}
	folder := tree.Folder(group)
	if trees.Unified {
		text, err := fs.ReadFile(d.opts.Root, path.Join(folder, "io.stat"))
		if err != nil {
			return nil, err
		}
		return parseIOStat(text)
	}
	return d.readBlkio(folder)
}

// readBlkio reads the counters of a version 1 group, including the groups below it.
func (d *Disk) readBlkio(folder string) (map[string]diskUse, error) {
	disks := map[string]diskUse{}
	for _, file := range []string{"blkio.throttle.io_serviced_recursive", "blkio.throttle.io_service_bytes_recursive"} {
		text, err := fs.ReadFile(d.opts.Root, path.Join(folder, file))
		if err != nil {
			return nil, err
		}
		counts, err := parseBlkio(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for name, n := range counts {
			use := disks[name]
			if strings.Contains(file, "bytes") {
				use.bytes = n
			} else {
				use.operations = n
			}
			disks[name] = use
		}
	}
	return disks, nil
}

// parseDiskstats reads lines like "254 0 vda READS MERGED SECTORS MS WRITES MERGED SECTORS ...". It skips disks in memory or in files, and
// partitions, which are counted with their disk.
func parseDiskstats(text []byte) (map[string]diskUse, error) {
	const sector = 512
	disks := map[string]diskUse{}
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 10 {
			return nil, fmt.Errorf("diskstats: want at least 10 columns, got %q", line)
		}
		name := string(fields[2])
		if strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") || strings.HasPrefix(name, "zram") {
			continue
		}
		var n [4]uint64
		for i, column := range []int{3, 7, 5, 9} {
			var err error
			if n[i], err = parseCount(string(fields[column])); err != nil {
				return nil, fmt.Errorf("diskstats: %w", err)
			}
		}
		disks[fmt.Sprintf("%s:%s", fields[0], fields[1])] = diskUse{n[0] + n[1], sector * (n[2] + n[3])}
	}
	return disks, nil
}

// parseIOStat reads lines like "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0".
func parseIOStat(text []byte) (map[string]diskUse, error) {
	disks := map[string]diskUse{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 { // a disk without counters
			continue
		}
		var use diskUse
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			into := map[string]*uint64{"rbytes": &use.bytes, "wbytes": &use.bytes, "rios": &use.operations, "wios": &use.operations}[key]
			if into == nil {
				continue
			}
			n, err := parseCount(value)
			if err != nil {
				return nil, fmt.Errorf("io.stat: %w", err)
			}
			*into += n
		}
		disks[fields[0]] = use
	}
	return disks, nil
}

// parseBlkio sums lines like "8:0 Read 1" and "8:0 Write 2" by disk.
func parseBlkio(text []byte) (map[string]uint64, error) {
	sums := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[1] != "Read" && fields[1] != "Write" {
			continue
		}
		n, err := parseCount(fields[2])
		if err != nil {
			return nil, err
		}
		sums[fields[0]] += n
	}
	return sums, nil
}

// parseCount reads a counter. It refuses one so large that a sum, or its product with the sector size, could overflow.
func parseCount(text string) (uint64, error) {
	const most = 1 << 53
	n, err := strconv.ParseUint(text, 10, 63)
	if err == nil && n > most {
		err = fmt.Errorf("%d is out of range", n)
	}
	return n, err
}
