package limit

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/quellhq/quell/internal/cgroup"
)

// disk limits operations of one disk: reads, and likewise writes, to a number per second. Settings are as in io.max, without the bytes:
// "8:0 riops=100 wiops=max".
type disk struct {
	root    string
	tree    cgroup.Tree
	unified bool
	device  string
}

func newDisk(o Options) (kind, error) {
	trees, err := cgroup.Find(os.DirFS(o.Root))
	if err != nil {
		return nil, err
	}
	tree, ok := trees.Of("blkio")
	if !ok {
		return nil, errors.New("the kernel offers no control groups for disks: mount cgroup version 2, or version 1 with blkio")
	}
	d := &disk{o.Root, tree, trees.Unified, o.Disk}
	if d.device == "" {
		if d.device, err = cgroup.DiskOf(o.Root); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *disk) unit() string { return "operations per second" }

func (d *disk) folder(group string) string { return filepath.Join(d.root, d.tree.Folder(group)) }

func (d *disk) identity(group string) (uint64, error) { return inode(d.folder(group)) }

const (
	readsFile  = "blkio.throttle.read_iops_device"
	writesFile = "blkio.throttle.write_iops_device"
)

func (d *disk) read(group string) (setting, error) {
	reads, writes := unlimited, unlimited
	if d.unified {
		line, err := d.line(group, "io.max")
		if err != nil {
			return "", err
		}
		for field := range strings.FieldsSeq(line) {
			switch name, value, _ := strings.Cut(field, "="); name {
			case "riops":
				reads = value
			case "wiops":
				writes = value
			}
		}
		return d.setting(reads, writes), nil
	}
	for file, rate := range map[string]*string{readsFile: &reads, writesFile: &writes} {
		line, err := d.line(group, file)
		if err != nil {
			return "", err
		}
		if line != "" {
			*rate = line
		}
	}
	return d.setting(reads, writes), nil
}

// line returns what a file says about the disk; "" if nothing.
func (d *disk) line(group, file string) (string, error) {
	text, err := get(d.folder(group), file)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), d.device+" "); ok {
			return rest, err
		}
	}
	return "", err
}

func (d *disk) setting(reads, writes string) setting {
	return setting(fmt.Sprintf("%s riops=%s wiops=%s", d.device, reads, writes))
}

// rates returns the device, and the rates of reads and of writes, of a setting.
func rates(s setting) (device, reads, writes string) {
	fields := strings.Fields(string(s))
	if len(fields) != 3 {
		return "", unlimited, unlimited
	}
	return fields[0], strings.TrimPrefix(fields[1], "riops="), strings.TrimPrefix(fields[2], "wiops=")
}

func (d *disk) write(group string, s setting) error {
	if d.unified {
		return put(d.folder(group), "io.max", string(s))
	}
	before, err := d.read(group)
	if err != nil {
		return err
	}
	if err := d.writeParts(group, s); err != nil {
		return errors.Join(err, d.writeParts(group, before))
	}
	return nil
}

// writeParts writes reads and writes, which version 1 has in two files. There, 0 lifts a limit.
func (d *disk) writeParts(group string, s setting) error {
	device, reads, writes := rates(s)
	for _, part := range [][2]string{{readsFile, reads}, {writesFile, writes}} {
		rate := part[1]
		if rate == unlimited {
			rate = "0"
		}
		if err := put(d.folder(group), part[0], device+" "+rate); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) to(operations float64, _ setting) setting {
	const most = math.MaxUint32 // of the kernel
	rate := strconv.FormatInt(max(1, int64(math.Round(min(operations, most-1)))), 10)
	return d.setting(rate, rate)
}

func (d *disk) value(s setting) (least float64, limited bool) {
	_, reads, writes := rates(s)
	for _, text := range []string{reads, writes} {
		if rate, err := strconv.ParseFloat(text, 64); err == nil && (!limited || rate < least) {
			least, limited = rate, true
		}
	}
	return least, limited
}
