package setting

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// errSyntax says that a text does not have the expected form; the caller's message says which form that is.
var errSyntax = errors.New("wrong form")

// unit is a suffix and its factor.
type unit struct {
	suffix string
	factor float64
}

// bandwidths are decimal, in bit/s. A value is written in the first of these units in which it is short.
var bandwidths = []unit{
	{"Gbps", 1e9}, {"Mbps", 1e6}, {"kbps", 1e3}, {"bps", 1},
	{"Kbps", 1e3}, {"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}, {"bit/s", 1},
}

// sizes are in bytes: KB is 1000, KiB is 1024.
var sizes = []unit{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

// maxSize limits sizes so that arithmetic with them cannot overflow.
const maxSize = 1 << 50

// ParseReal reads a plain decimal number. It refuses NaN, infinities, hexadecimal and underscores.
func ParseReal(s string) (float64, error) {
	if strings.Trim(s, "0123456789+-.eE") != "" {
		return 0, errSyntax
	}
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, errSyntax
	}
	return x, nil
}

func parseWhole(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, errSyntax
	}
	return n, nil
}

func parseSeed(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, errSyntax
	}
	return n, nil
}

// parseDuration reads 75ms, 10s, 1h30m, 1d12h; a bare 0 needs no unit. A day has 24 hours.
func parseDuration(s string) (time.Duration, error) {
	number, rest, hasDays := strings.Cut(s, "d")
	if !hasDays {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, errSyntax
		}
		return d, nil
	}
	days, err := ParseReal(number)
	if err != nil || math.Abs(days) > maxDays {
		return 0, errSyntax
	}
	whole := time.Duration(days * float64(24*time.Hour))
	if rest == "" {
		return whole, nil
	}
	if rest[0] == '-' || rest[0] == '+' {
		return 0, errSyntax
	}
	part, err := time.ParseDuration(rest)
	if err != nil || part > 24*time.Hour {
		return 0, errSyntax
	}
	if days < 0 {
		part = -part
	}
	return whole + part, nil
}

// maxDays limits durations to the range of time.Duration.
const maxDays = 100_000

// ParseDuration reads a duration on a command line, written as in a file: 75ms, 10s, 1h30m, 1d. The error says how to
// write one.
func ParseDuration(s string) (time.Duration, error) {
	d, err := parseDuration(s)
	if err == nil {
		return d, nil
	}
	if _, err := ParseReal(s); err == nil {
		return 0, fmt.Errorf("the unit is missing: write %[1]sms, %[1]ss, %[1]sm, %[1]sh or %[1]sd", s)
	}
	return 0, errors.New("must be " + durationKind)
}

// ParseShare reads a share on a command line, written as in a file: 5% or 0.05. The error says how to write one.
func ParseShare(s string) (float64, error) {
	x, err := parseShare(s)
	if err != nil {
		return 0, errors.New("must be " + shareKind)
	}
	return x, nil
}

// parseShare reads 5% or 0.05 as the fraction 0.05.
func parseShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	x, err := ParseReal(strings.TrimRight(number, " "))
	if percent {
		x /= 100
	}
	return x, err
}

// parseBandwidth reads 40Mbps or 1Gbps as bit/s.
func parseBandwidth(s string) (float64, error) {
	return parseUnit(s, bandwidths)
}

// parseSize reads 50KB, 64MiB or a bare number of bytes.
func parseSize(s string) (int64, error) {
	x, err := parseUnit(s, sizes)
	if err != nil {
		x, err = ParseReal(s)
	}
	if err != nil || x != math.Trunc(x) || math.Abs(x) > maxSize {
		return 0, errSyntax
	}
	return int64(x), nil
}

func parseUnit(s string, units []unit) (float64, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		if x, err := ParseReal(strings.TrimRight(number, " ")); err == nil && !math.IsInf(x*u.factor, 0) {
			return x * u.factor, nil
		}
	}
	return 0, errSyntax
}

func formatReal(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
func formatSeed(n uint64) string  { return strconv.FormatUint(n, 10) }

// FormatShare writes a fraction as a percentage, with few digits if they are exact.
func FormatShare(x float64) string {
	text := strconv.FormatFloat(x*100, 'g', 10, 64) + "%"
	if back, err := parseShare(text); err != nil || back != x {
		return formatReal(x)
	}
	return text
}

// FormatSize writes a number of bytes as 50KB or 64MiB.
func FormatSize(n int64) string { return formatUnit(float64(n), sizes) }

// FormatDuration writes 10s and 1h30m instead of the standard library's 1h30m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func formatBandwidth(x float64) string { return formatUnit(x, bandwidths) }

// formatUnit writes a value in the first unit in which it is at least 1 and has at most three decimals, or without a
// unit.
func formatUnit(x float64, units []unit) string {
	for _, u := range units {
		if y := x / u.factor; u.factor == 1 || math.Abs(y) >= 1 && y*1000 == math.Trunc(y*1000) {
			return strconv.FormatFloat(y, 'f', -1, 64) + u.suffix
		}
	}
	return formatReal(x)
}
