package middleware

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
)

// directives are parameters that each stand in the file once, as a name with a value. Everything else in the file stays as it is.
type directives struct {
	// line returns the pattern of the text that sets a parameter. Its three groups are the text before the value, the value, and the text
	// after the value.
	line func(name string) string
	// mpm returns the module of the running server on which it depends which blocks of the file count. nil: all count.
	mpm func() (string, error)
}

// errNotRunning is the error if it depends on the running server which one of several lines counts.
var errNotRunning = errors.New("which of them counts depends on the running server")

// find returns where a parameter's value stands.
func (d directives) find(content, name string) (from, to int, err error) {
	found := regexp.MustCompile(d.line(regexp.QuoteMeta(name))).FindAllStringSubmatchIndex(content, -1)
	all := len(found)
	if d.mpm != nil && all > 0 {
		module, unknown := d.mpm()
		switch {
		case unknown == nil:
			found = slices.DeleteFunc(found, func(at []int) bool { return excluded(content, at[4], module) })
		case all > 1:
			return 0, 0, fmt.Errorf("it sets %s %d times, and %w: %w", name, all, errNotRunning, unknown)
		}
		if len(found) == 0 {
			return 0, 0, fmt.Errorf("it sets %s only for other modules than %s, which runs: write the present value there, so that it can be "+
				"changed", name, module)
		}
	}
	switch len(found) {
	case 0:
		return 0, 0, fmt.Errorf("it does not set %s: write the present value there, so that it can be changed", name)
	case 1:
		return found[0][4], found[0][5], nil
	}
	return 0, 0, fmt.Errorf("it sets %s %d times: keep one of them", name, len(found))
}

func (d directives) values(content string, names []string, _ map[string]float64) (map[string]float64, error) {
	values := map[string]float64{}
	for _, name := range names {
		from, to, err := d.find(content, name)
		if err != nil {
			return nil, err
		}
		if v, err := strconv.ParseFloat(content[from:to], 64); err == nil && !math.IsInf(v, 0) && !math.IsNaN(v) {
			values[name] = v // others are words such as auto
		}
	}
	return values, nil
}

func (d directives) word(original, name string) string {
	from, to, err := d.find(original, name)
	if err != nil {
		return ""
	}
	return original[from:to]
}

func (d directives) with(content string, values map[string]float64) (string, error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		from, to, err := d.find(content, name)
		if err != nil {
			return "", err
		}
		content = content[:from] + number(values[name]) + content[to:]
	}
	return content, nil
}

// number writes a value as servers read it.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
