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

// The kernel accepts quotas of at least a millisecond and periods of at most a second, both in microseconds.
const (
	leastQuota  = 1000
	mostPeriod  = 1_000_000
	usualPeriod = 100_000
	unlimited   = "max"
)

// cpu limits processor time. Settings are as in cpu.max: quota and period in microseconds, "50000 100000", or "max 100000".
type cpu struct {
	root    string
	tree    cgroup.Tree
	unified bool
}

func newCPU(o Options) (*cpu, error) {
	trees, err := cgroup.Find(os.DirFS(o.Root))
	if err != nil {
		return nil, err
	}
	tree, ok := trees.Of("cpu")
	if !ok {
		return nil, errors.New("the kernel offers no control groups for processors: mount cgroup version 2, or version 1 with cpu")
	}
	return &cpu{o.Root, tree, trees.Unified}, nil
}

func (c *cpu) unit() string { return "processors" }

func (c *cpu) folder(group string) string { return filepath.Join(c.root, c.tree.Folder(group)) }

func (c *cpu) identity(group string) (uint64, error) { return inode(c.folder(group)) }

const (
	quotaFile  = "cpu.cfs_quota_us"
	periodFile = "cpu.cfs_period_us"
)

func (c *cpu) read(group string) (setting, error) {
	if c.unified {
		text, err := get(c.folder(group), "cpu.max")
		return setting(text), err
	}
	quota, err := get(c.folder(group), quotaFile)
	if err != nil {
		return "", err
	}
	period, err := get(c.folder(group), periodFile)
	if strings.HasPrefix(quota, "-") {
		quota = unlimited
	}
	return setting(quota + " " + period), err
}

func (c *cpu) write(group string, s setting) error {
	if c.unified {
		return put(c.folder(group), "cpu.max", string(s))
	}
	before, err := c.read(group)
	if err != nil {
		return err
	}
	if err := c.writeParts(group, before, s); err != nil {
		return errors.Join(err, c.writeParts(group, s, before))
	}
	return nil
}

// writeParts writes quota and period, which version 1 has in two files. A period that changes while a quota is set might for a moment allow
// more than the groups above, which the kernel refuses, so the quota is lifted first.
func (c *cpu) writeParts(group string, before, after setting) error {
	quota, period := parts(after)
	if quota == unlimited {
		quota = "-1"
	}
	steps := [][2]string{{quotaFile, quota}}
	if _, was := parts(before); was != period {
		steps = [][2]string{{quotaFile, "-1"}, {periodFile, period}, {quotaFile, quota}}
	}
	for _, step := range steps {
		if err := put(c.folder(group), step[0], step[1]); err != nil {
			return err
		}
	}
	return nil
}

func parts(s setting) (quota, period string) {
	quota, period, _ = strings.Cut(string(s), " ")
	return quota, period
}

// to returns the setting that limits a group to a number of processors. It keeps the period of now, the present setting, unless the quota
// would be shorter than the kernel accepts.
func (c *cpu) to(processors float64, now setting) setting {
	_, text := parts(now)
	period, err := strconv.Atoi(text)
	if err != nil || period <= 0 {
		period = usualPeriod
	}
	for processors*float64(period) < leastQuota && period < mostPeriod {
		period = min(2*period, mostPeriod)
	}
	const most = 1e6 // processors
	quota := max(leastQuota, int64(math.Round(min(processors, most)*float64(period))))
	return setting(fmt.Sprintf("%d %d", quota, period))
}

func (c *cpu) value(s setting) (float64, bool) {
	quota, period := parts(s)
	q, errQ := strconv.ParseFloat(quota, 64)
	p, errP := strconv.ParseFloat(period, 64)
	if errQ != nil || errP != nil || p <= 0 {
		return 0, false
	}
	return q / p, true
}

// get reads a file of one line.
func get(folder, file string) (string, error) {
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		return "", explain(err)
	}
	return strings.TrimSpace(string(text)), nil
}

// put writes an existing file in one call, because the kernel takes each write as a whole value.
func put(folder, name, text string) error {
	file, err := os.OpenFile(filepath.Join(folder, name), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return explain(err)
	}
	_, err = file.WriteString(text)
	if err != nil {
		err = fmt.Errorf("writing %q: %w", text, explain(err))
	}
	return errors.Join(err, file.Close())
}
