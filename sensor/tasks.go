package sensor

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// mostTasks is how many tasks are read in one period. If there are more, that is reported as a failure.
const mostTasks = 20_000

// taskReader reads how long tasks ran and waited, and in which state they are.
type taskReader struct {
	root   fs.FS
	told   bool       // the kernel reports it
	always bool       // also where pressure tells how long the group waits
	left   int        // tasks that may still be read
	kept   int        // of these, for groups that are read later
	short  bool       // there were more
	files  *keptFiles // nil: files are opened anew each time
}

func newTaskReader(root fs.FS) *taskReader {
	_, err := fs.ReadFile(root, "proc/self/schedstat")
	return &taskReader{root: root, told: err == nil, left: mostTasks}
}

// err returns an error if some groups' tasks were not read.
func (t *taskReader) err() error {
	if !t.short {
		return nil
	}
	return fmt.Errorf("the groups have more than %d tasks: how the rest waits is not known; name fewer groups", mostTasks)
}

// read returns the times of the tasks of a group and of the groups below it; nil if they are unknown.
func (t *taskReader) read(l *groupLayout) map[int]taskTimes {
	if !t.told {
		return nil
	}
	times := map[int]taskTimes{}
	t.walk(l.tasks(), l.taskList(), func(id string) { t.add(times, id) })
	if t.left < t.kept {
		t.left, t.short = t.kept, true
		return nil
	}
	return times
}

// tasks is the folder in which the group's tasks are listed.
func (l *groupLayout) tasks() string {
	if l.unaccounted() {
		return l.cpu
	}
	return l.usage
}

// taskList is the name of the file that lists the group's tasks.
func (l *groupLayout) taskList() string {
	if l.unified {
		return "cgroup.threads"
	}
	return "tasks"
}

// walk calls visit with each task that is listed in a folder and in those below it. A group that ends meanwhile is skipped.
func (t *taskReader) walk(folder, list string, visit func(id string)) {
	text, err := fs.ReadFile(t.opening(), path.Join(folder, list))
	if err != nil {
		return
	}
	for id := range strings.FieldsSeq(string(text)) {
		if t.left--; t.left < t.kept {
			return
		}
		visit(id)
	}
	if !hasFolders(t.root, folder) {
		return
	}
	entries, _ := fs.ReadDir(t.root, folder) // the group may end meanwhile
	for _, e := range entries {
		if e.IsDir() && t.left >= t.kept {
			t.walk(path.Join(folder, e.Name()), list, visit)
		}
	}
}

// hasFolders returns whether a folder may have folders in it. The kernel's file system of control groups counts them: a folder has a link
// for each, and two more. Reading the count is much faster than listing the folder.
func hasFolders(root fs.FS, folder string) bool {
	info, err := fs.Stat(root, folder)
	if err != nil {
		return true
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || stat.Nlink != 2
}

// opening returns the file system in which every file is opened anew. Lists of tasks need that: in version 1, a list that is read again
// within a second of the last reading still has the tasks of the moment in which it was opened.
func (t *taskReader) opening() fs.FS {
	if t.files == nil {
		return t.root
	}
	return t.files.root
}

func (t *taskReader) readFile(name string) ([]byte, error) {
	if t.files == nil {
		return fs.ReadFile(t.root, name)
	}
	return t.files.read(name)
}

// add reads the times of a task. One that ends meanwhile is skipped.
func (t *taskReader) add(times map[int]taskTimes, id string) {
	number, err := strconv.Atoi(id)
	if err != nil || number <= 0 {
		return
	}
	text, err := t.readFile("proc/" + id + "/schedstat")
	if err != nil {
		return
	}
	one, err := parseTaskSchedstat(text)
	if err != nil {
		return
	}
	times[number] = one
}

// States of tasks in /proc/PID/stat.
const (
	runnable    = 'R' // it runs or waits for a processor
	diskWaiting = 'D' // it waits for a disk or for another device, and cannot be interrupted
)

// count returns how many of a group's tasks are to be counted; ok is false if it has too many tasks to look at, or none can be read.
func (t *taskReader) count(l *groupLayout, counts func(id string, state byte) bool) (n int, ok bool) {
	listed, read := 0, 0
	t.walk(l.tasks(), l.taskList(), func(id string) {
		listed++
		text, err := fs.ReadFile(t.opening(), "proc/"+id+"/stat")
		if err != nil {
			return
		}
		if read++; counts(id, stateOf(text)) {
			n++
		}
	})
	return n, t.left >= 0 && (read > 0 || listed == 0)
}

// stateOf returns the state in /proc/PID/stat, 0 if there is none. It follows the program's name, which is in parentheses and may contain
// others.
func stateOf(stat []byte) byte {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 || len(stat) < end+4 || stat[end+1] != ' ' || stat[end+3] != ' ' {
		return 0
	}
	return stat[end+2]
}
