package balancer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quellhq/quell/setting"
)

// Class is a kind of requests: those whose path matches a pattern. In a pattern each star stands for any text, also for slashes.
type Class struct {
	Name, Path string
	Outside    bool // its requests are demand, but not part of the objective
}

// OtherClass is the class of all requests that match no pattern.
const OtherClass = "other"

// MostClasses is the largest number of patterns.
const MostClasses = 15

// Classes are the classes of a service's requests. The first one that matches counts.
type Classes []Class

// Names lists the names of all classes, with OtherClass; nil if there are no classes.
func (c Classes) Names() (names []string) {
	if len(c) == 0 {
		return nil
	}
	for _, class := range c {
		names = append(names, class.Name)
	}
	return append(names, OtherClass)
}

// Of returns the class of a request with this target, as the request's first line has it; "" if there are no classes.
func (c Classes) Of(target string) string {
	if len(c) == 0 {
		return ""
	}
	path := pathOf(target)
	for _, class := range c {
		if matches(class.Path, path) {
			return class.Name
		}
	}
	return OtherClass
}

// Aside returns whether a class is not part of the objective.
func (c Classes) Aside(name string) bool {
	return slices.ContainsFunc(c, func(class Class) bool { return class.Outside && class.Name == name })
}

// pathOf returns the path of a request's target without its query, for example /a of /a?b=c and of http://host/a.
func pathOf(target string) string {
	if i := strings.IndexAny(target, "?#"); i >= 0 {
		target = target[:i]
	}
	if _, rest, whole := strings.Cut(target, "://"); whole && !strings.HasPrefix(target, "/") {
		_, path, _ := strings.Cut(rest, "/")
		return "/" + path
	}
	return target
}

// matches returns whether a path fits a pattern.
func matches(pattern, path string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 {
		return pattern == path
	}
	rest, ok := strings.CutPrefix(path, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1:last] {
		if _, rest, ok = strings.Cut(rest, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(rest, parts[last])
}

// matchesAll returns whether a pattern matches every path, all of which begin with a slash.
func matchesAll(pattern string) bool {
	text := strings.ReplaceAll(pattern, "*", "")
	return strings.HasSuffix(pattern, "*") && (text == "" || text == "/")
}

// ClassKeys reads a list of classes.
func ClassKeys(classes *Classes) setting.Value {
	return setting.ListOf((*[]Class)(classes), Class{}, func(c *Class) setting.Value {
		return setting.Table{
			setting.Req("name", setting.Ident(&c.Name), "name of the class"),
			setting.Req("path", setting.Text(&c.Path),
				"pattern of the requests' paths, without query: each star stands for any text, as in /tag/* and *.jpg"),
			setting.Opt("objective", setting.Not(&c.Outside),
				"whether its response times count for slo; off for events, long polls, downloads and other streams"),
		}
	})
}

// Check reports patterns that can match nothing or that match everything. at is the place of the list in the configuration.
func (c Classes) Check(d *setting.Decoder, at string) {
	if len(c) > MostClasses && d.Sound(at) {
		d.Refuse(at, "", "has %d classes; at most %d are possible", len(c), MostClasses)
	}
	for i, class := range c {
		item := fmt.Sprintf("%s[%d]", at, i)
		if !d.Sound(item) {
			continue
		}
		earlier := slices.IndexFunc(c[:i], func(other Class) bool { return matches(other.Path, class.Path) })
		switch {
		case class.Name == OtherClass:
			d.Refuse(item+".name", "choose another name", "%s is the class of all requests that match no pattern", OtherClass)
		case slices.ContainsFunc(c[:i], func(other Class) bool { return other.Name == class.Name }):
			d.Refuse(item+".name", "", "two classes are called %s", class.Name)
		case !strings.HasPrefix(class.Path, "/") && !strings.HasPrefix(class.Path, "*"):
			d.Refuse(item+".path", "begin it with / or *", "%q matches nothing: every path begins with a slash", class.Path)
		case strings.ContainsAny(class.Path, "?# "):
			d.Refuse(item+".path", "leave the query out", "%q matches nothing: a path has no ?, # or space", class.Path)
		case strings.ContainsFunc(class.Path, func(r rune) bool { return r < ' ' || r > '~' }):
			d.Refuse(item+".path", "write other characters as in %C3%A9", "%q matches nothing: paths of requests are ASCII text",
				class.Path)
		case matchesAll(class.Path):
			d.Refuse(item+".path", "remove the class: the requests that match no other pattern are of class "+OtherClass+" anyway",
				"%q matches every path", class.Path)
		case earlier >= 0:
			d.Refuse(item+".path", "put it first, or remove it", "%q matches nothing: all its paths match %q before", class.Path,
				c[earlier].Path)
		}
	}
}

// ClassWatch finds patterns that match none or all of a service's requests, which most often are mistakes. Its zero value has seen nothing.
type ClassWatch struct {
	counts map[string]int64
	total  int64
	told   map[string]bool
}

// enoughRequests is after how many requests a pattern is judged.
const enoughRequests = 1000

// Add counts requests by class, and returns what is wrong with patterns; each mistake once, until the pattern matches as it should.
func (w *ClassWatch) Add(classes Classes, counts map[string]int64) (mistakes []string) {
	if w.counts == nil {
		w.counts, w.told = map[string]int64{}, map[string]bool{}
	}
	for class, n := range counts {
		w.counts[class] += n
		w.total += n
	}
	if w.total < enoughRequests {
		return nil
	}
	for _, class := range classes {
		n := w.counts[class.Name]
		wrong := n == 0 || n == w.total
		if wrong && !w.told[class.Name] {
			mistakes = append(mistakes, fmt.Sprintf("%d of the last %d requests match %q, the path of class %s: if that is a mistake, "+
				"correct balancer.classes", n, w.total, class.Path, class.Name))
		}
		w.told[class.Name] = wrong
	}
	clear(w.counts)
	w.total = 0
	return mistakes
}
