package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/quellhq/quell/agentless"
)

// mostShown is how many servers the conclusion lists.
const mostShown = 20

// conclude writes what was found last: the slowed servers first, and what cannot be told. It is an error if no server could be judged.
func conclude(w io.Writer, findings []agentless.Finding) error {
	if len(findings) == 0 {
		return errors.New("no window was complete: look for longer (--for)")
	}
	slices.SortStableFunc(findings, func(a, b agentless.Finding) int { return rank(&a) - rank(&b) })
	text, err := verdict(findings)
	fmt.Fprintf(w, "\n%s", text)
	missing := map[string]int{}
	for i := range findings {
		if i < mostShown {
			fmt.Fprintf(w, "  %s\n", findings[i].Text())
		}
		for _, m := range findings[i].Missing {
			missing[m]++
		}
	}
	if more := len(findings) - mostShown; more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
	fmt.Fprintf(w, "\nnot known from here:\n")
	for i := range findings {
		for _, m := range findings[i].Missing {
			if n := missing[m]; n > 0 {
				fmt.Fprintf(w, "  %s (%d server(s))\n", m, n)
				delete(missing, m)
			}
		}
	}
	return err
}

// earlier writes which servers were slowed in earlier windows, and no longer are.
func earlier(w io.Writer, findings []agentless.Finding, seen map[string]int, windows int) error {
	var lines []string
	for i := range findings {
		if f := &findings[i]; !f.Slowed && seen[f.ID] > 0 {
			lines = append(lines, fmt.Sprintf("  %s in %d of %d windows\n", f.ID, seen[f.ID], windows))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	shown := lines[:min(len(lines), mostShown)]
	_, err := fmt.Fprintf(w, "\nslowed earlier in this look, and no longer:\n%s", strings.Join(shown, ""))
	return err
}

// verdict says how many servers are slowed, of those that could be judged, and why the others could not. It is an error if none could.
func verdict(findings []agentless.Finding) (text string, err error) {
	slowed, slow, judged := 0, 0, 0
	why := map[string]int{}
	for i := range findings {
		f := &findings[i]
		if f.Severity == nil {
			why[cause(f.Unknown)]++
		} else {
			judged++
		}
		if f.Slowed {
			slowed++
		} else if f.Slow {
			slow++
		}
	}
	others := ""
	if n := len(findings) - judged; n > 0 {
		others = fmt.Sprintf("%d of %d server(s) could not be judged: %s", n, len(findings), causes(why))
	}
	switch {
	case judged == 0:
		return "", errors.New(others)
	case slowed > 0:
		text = fmt.Sprintf("%d of %d judged server(s) are slowed by something beside their requests.\n", slowed, judged)
	case slow > 0: // the next line says it
	case others != "":
		text = fmt.Sprintf("None of the %d judged server(s) is slowed by something beside its requests.\n", judged)
	default:
		text = "No server is slowed by something beside its requests.\n"
	}
	if slow > 0 {
		text += fmt.Sprintf("%d of %d server(s) answer requests more slowly than usual; why cannot be told from here.\n", slow, len(findings))
	}
	if others != "" {
		text += others + ".\n"
	}
	return text, nil
}

// cause shortens why a server could not be judged: a failed connection without its address, so that equal ones are counted together.
func cause(why string) string {
	if i := strings.LastIndex(why, ": "); i >= 0 && strings.HasPrefix(why, "dial ") {
		return why[i+2:]
	}
	return why
}

// causes lists causes with their numbers, the most frequent first.
func causes(why map[string]int) string {
	var parts []string
	order := func(a, b string) int { return cmp.Or(cmp.Compare(why[b], why[a]), cmp.Compare(a, b)) }
	for _, c := range slices.SortedFunc(maps.Keys(why), order) {
		parts = append(parts, fmt.Sprintf("%s (%d)", c, why[c]))
	}
	return strings.Join(parts, ", ")
}

func rank(f *agentless.Finding) int {
	switch {
	case f.Slowed:
		return 0
	case f.Slow:
		return 1
	case f.Severity == nil:
		return 2
	}
	return 3
}
