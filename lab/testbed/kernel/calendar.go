package kernel

import (
	"embed"
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
