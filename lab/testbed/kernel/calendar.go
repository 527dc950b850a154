package kernel

import (
	"embed"
	"path/filepath"
	"strconv"
)

// The pages, data and server configurations of the event calendar.
//
//go:embed calendar
var calendarFiles embed.FS

// calendarFolder is where the calendar's pages are, in their embedded files and below the server's root.
const calendarFolder = "calendar"

// calendarEvents is the number of events in the calendar; calendar.sql and calendar.php have it, too.
const calendarEvents = 500

// CalendarPath is the path of a page of the event calendar: HomePage, TagSearch or EventDetail.
func CalendarPath(page string) string { return "/" + calendarFolder + "/" + page + ".php" }

// CalendarPage is the path of a page for one of the calendar's items, which the number selects.
func CalendarPage(page string, number uint64) string {
	return CalendarPath(page) + "?item=" + strconv.FormatUint(number%calendarEvents, 10)
}

// ServerFiles are the files of one of the calendar's servers.
type ServerFiles struct {
	Main       string            // the server's configuration
	PID        string            // holds the id of the server's main process
	Parameters map[string]string // where each parameter stands that a policy may change
}

// Apache returns the files of the web server.
func (c *Calendar) Apache() ServerFiles {
	f := ServerFiles{Main: filepath.Join(c.Dir, "apache.conf"), PID: filepath.Join(c.Dir, "apache.pid"), Parameters: map[string]string{}}
	for _, name := range []string{"MaxRequestWorkers", "KeepAliveTimeout"} {
		f.Parameters[name] = filepath.Join(c.Dir, name+".conf")
	}
	return f
}

// PHP returns the files of PHP's process manager.
func (c *Calendar) PHP() ServerFiles {
	main := filepath.Join(c.Dir, "php-fpm.conf")
	return ServerFiles{Main: main, PID: filepath.Join(c.Dir, "fpm.pid"), Parameters: map[string]string{"pm.max_children": main}}
}
