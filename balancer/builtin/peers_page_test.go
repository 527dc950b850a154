package builtin

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// recorded is what the page says: versions by peer, and cells by peer and case.
type recorded struct {
	versions map[string]string
	cells    map[string]map[string]string
}

const pageHead = `# The same bytes through Quell, HAProxy and nginx

Written by ` + "`go test ./balancer/builtin -run TestTheSameBytes -update`" + `, which sends the same bytes to the built-in
balancer, to HAProxy %s and to nginx %s. Before the arrow stands what the instance got, behind it what
the client got. "of its own" is an answer that the proxy made. "kept" means that a further request on
the connection was answered, "cut" that a message ended early. HAProxy and nginx have no options
beyond a plain reverse proxy's: no buffering, HTTP/1.1 to the instance, ` + "`X-Forwarded-For`" + `, and
upgrades for WebSocket. The test fails if a proxy's row changes, or if rows differ without a reason.

%d cases; %d of them are the same in all three.
`

// writePage returns the page. Proxies with the same result share a row.
func writePage(peers []*peer, results map[string]map[string]string) []byte {
	var body strings.Builder
	same := 0
	for _, c := range bytesCases() {
		fmt.Fprintf(&body, "\n## %s\n\n", strings.ToUpper(c.name[:1])+c.name[1:])
		if c.about != "" {
			fmt.Fprintf(&body, "%s\n\n", c.about)
		} else {
			fmt.Fprintf(&body, "`%s`\n\n", shown(strings.Join(c.send, "")))
		}
		body.WriteString("| proxy | result |\n|---|---|\n")
		rows := rowsOf(peers, results, c.name)
		for _, r := range rows {
			fmt.Fprintf(&body, "| %s | %s |\n", strings.Join(r.names, ", "), strings.ReplaceAll(r.cell, "|", "&#124;"))
		}
		if same++; len(rows) > 1 {
			same--
			fmt.Fprintf(&body, "\n%s\n", bytesReasons[c.name])
		}
	}
	return fmt.Appendf(nil, pageHead+"%s", peers[1].version, peers[2].version, len(bytesCases()), same, body.String())
}

type pageRow struct {
	names []string
	cell  string
}

func rowsOf(peers []*peer, results map[string]map[string]string, name string) (rows []pageRow) {
	for _, p := range peers {
		cell := results[p.name][name]
		at := slices.IndexFunc(rows, func(r pageRow) bool { return r.cell == cell })
		if at < 0 {
			at, rows = len(rows), append(rows, pageRow{cell: cell})
		}
		rows[at].names = append(rows[at].names, p.name)
	}
	return rows
}

// readPage reads the page back, for the columns of proxies that are not installed.
func readPage(t *testing.T) recorded {
	r := recorded{map[string]string{"HAProxy": "2.6", "nginx": "1.22"}, map[string]map[string]string{"Quell": {}, "HAProxy": {}, "nginx": {}}}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Log(err)
	}
	name := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if heading, is := strings.CutPrefix(line, "## "); is {
			name = strings.ToLower(heading[:1]) + heading[1:]
		}
		parts := strings.SplitN(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ", 2)
		if len(parts) != 2 || !strings.HasPrefix(line, "| ") {
			continue
		}
		for peer := range strings.SplitSeq(parts[0], ", ") {
			if cells := r.cells[peer]; cells != nil {
				cells[name] = strings.ReplaceAll(parts[1], "&#124;", "|")
			}
		}
	}
	return r
}

// shown returns what a client sends as the page shows it.
func shown(bytes string) string {
	quoted := strconv.QuoteToASCII(strings.ReplaceAll(bytes, "@", ""))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
