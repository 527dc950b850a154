package sensor

import (
	"errors"
	"iter"
	"path"
	"time"

	"github.com/quellhq/quell"
)

// groupAccount holds a group's counters at one moment.
type groupAccount struct {
	groupReading
	user, system *time.Duration
	pressure     map[string]stall
	tasks        map[int]taskTimes // nil if they were not read
}

// readGroup returns what could be read of a group, and an error about what could not. If the processor time cannot be read, it returns only
// the error.
func readGroup(l *groupLayout, now time.Time, tasks *taskReader) (*groupAccount, error) {
	reading, err := l.read(now)
	if err != nil {
		return nil, err
	}
	account := &groupAccount{groupReading: *reading}
	account.user, account.system = l.split()
	if l.unified {
		account.pressure, err = readStalls(l.root, l.cpu, ".pressure")
	}
	if _, told := account.pressure["cpu"]; !told || tasks.always {
		account.tasks = tasks.read(l)
	}
	if account.unaccounted && account.tasks == nil {
		return nil, errors.New("the group is in the hierarchy of cpu, but not in that of cpuacct, and the times of its tasks cannot be read: " +
			"make the group in cpuacct too")
	}
	return account, err
}

// split returns user and system time, nil if the kernel does not report them.
func (l *groupLayout) split() (user, system *time.Duration) {
	if l.unified {
		stat, err := l.stat(l.cpu)
		if err != nil {
			return nil, nil
		}
		of := func(key string) *time.Duration {
			us, ok := stat[key]
			if !ok {
				return nil
			}
			return new(time.Duration(us) * time.Microsecond)
		}
		return of("user_usec"), of("system_usec")
	}
	of := func(file string) *time.Duration {
		ns, err := l.number(path.Join(l.usage, file))
		if err != nil {
			return nil
		}
		return new(time.Duration(ns))
	}
	return of("cpuacct.usage_user"), of("cpuacct.usage_sys")
}

// until returns what the group did between two moments.
func (before *groupAccount) until(after *groupAccount, now time.Time, window time.Duration) (*quell.Observation, error) {
	cores, throttled, err := before.groupReading.until(&after.groupReading)
	if err != nil {
		return nil, err
	}
	if before.unaccounted != after.unaccounted {
		return nil, errors.New("the group has just entered or left the hierarchy of cpuacct: reading skipped")
	}
	if after.unaccounted {
		cores = ran(before.tasks, after.tasks, window).Seconds() / window.Seconds()
	}
	obs := &quell.Observation{At: now.UTC(), WindowS: window.Seconds(), Pressure: pressureBetween(before.pressure, after.pressure, window)}
	if throttled != nil {
		obs.Counters = map[string]float64{CounterThrottled: *throttled}
	}
	obs.Sched = &quell.Sched{
		Cores: after.quota, RunS: cores * window.Seconds(),
		UserS: elapsed(before.user, after.user), SystemS: elapsed(before.system, after.system),
	}
	if before.limited == after.limited { // otherwise a quota was set or removed, or another group has the least one now
		obs.Sched.ThrottledS = elapsed(&before.stopped, &after.stopped)
	}
	if before.tasks != nil && after.tasks != nil {
		if _, told := obs.Pressure["cpu"]; !told {
			obs.Sched.WaitS, obs.Sched.TaskRunS = waited(before.tasks, after.tasks, window)
		}
	}
	return obs, nil
}

func elapsed(before, after *time.Duration) *float64 {
	if before == nil || after == nil || *after < *before {
		return nil
	}
	return new((*after - *before).Seconds())
}

// ran returns how long the tasks of a group ran between two readings.
func ran(before, after map[int]taskTimes, window time.Duration) (sum time.Duration) {
	for spent := range spentBetween(before, after, window) {
		sum += spent.run
	}
	return sum
}

// waited returns how long tasks waited in run queues, in seconds, and a task's mean running time, weighted by how long each task waited.
func waited(before, after map[int]taskTimes, window time.Duration) (wait, taskRun *float64) {
	var sum, product float64
	for spent := range spentBetween(before, after, window) {
		w := spent.wait.Seconds()
		sum += w
		product += w * spent.run.Seconds()
	}
	if sum > 0 {
		taskRun = new(product / sum)
	}
	return &sum, taskRun
}

// spentBetween yields how long each task ran and waited between two readings. A task that is seen for the first time counts with its whole
// time, if it can have started within the window. Tasks that ended in between are not counted.
func spentBetween(before, after map[int]taskTimes, window time.Duration) iter.Seq[taskTimes] {
	return func(yield func(taskTimes) bool) {
		for id, now := range after {
			then, known := before[id]
			if known && (now.run < then.run || now.wait < then.wait) || !known && now.run+now.wait > window {
				continue // the task's number was reused, or an old task was moved into the group
			}
			if !yield(taskTimes{run: now.run - then.run, wait: now.wait - then.wait}) {
				return
			}
		}
	}
}
