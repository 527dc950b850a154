package golden

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// List is a list of items, such as the plans of a run, of which a golden file has digests.
type List struct {
	Name  string
	Items []any
}

// itemDigest is the length of an item's digest. Digests only find the first difference, so they are short.
const itemDigest = 3

// Explain says where lists differ from a file with digests of their items. It is called after another comparison: if that failed, Explain
// prints the first item of each list that differs. With -update it writes the file.
func Explain(t testing.TB, path string, lists []List) {
	t.Helper()
	switch {
	case *update:
		if err := os.WriteFile(path, digests(t, lists), 0o644); err != nil {
			t.Fatal(err)
		}
	case t.Failed():
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(Differences(t, want, lists))
	}
}

func digests(t testing.TB, lists []List) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, list := range lists {
		fmt.Fprintf(&out, "%s: ", list.Name)
		for _, item := range list.Items {
			out.WriteString(digestOf(encode(t, item)))
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// Differences describes the first item of each list that differs from the digests of a file that Explain wrote.
func Differences(t testing.TB, file []byte, lists []List) string {
	t.Helper()
	known := map[string]string{}
	for line := range strings.Lines(string(file)) {
		if at := strings.LastIndex(line, ": "); at >= 0 {
			known[line[:at]] = strings.TrimSuffix(line[at+2:], "\n")
		}
	}
	var out strings.Builder
	for _, list := range lists {
		all, recorded := known[list.Name]
		if !recorded {
			fmt.Fprintf(&out, "%s: not recorded\n", list.Name)
			continue
		}
		for i, item := range list.Items {
			data := encode(t, item)
			if rest, same := strings.CutPrefix(all, digestOf(data)); same {
				all = rest
				continue
			}
			fmt.Fprintf(&out, "%s: number %d of %d is the first that differs:\n%s\n", list.Name, i+1, len(list.Items), data)
			all = ""
			break
		}
		if all != "" {
			fmt.Fprintf(&out, "%s: ends after %d; %d more were recorded\n", list.Name, len(list.Items), len(all)/itemDigest)
		}
	}
	return out.String()
}

func encode(t testing.TB, item any) []byte {
	t.Helper()
	data, err := json.Marshal(item)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func digestOf(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data))[:itemDigest] }
