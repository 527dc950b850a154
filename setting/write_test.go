package setting_test

import (
	"strings"
	"testing"

	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/setting"
)

// TestPointersAreWrittenWhereTheyAreSet checks that an optional value is written if it is set, even to 0.
func TestPointersAreWrittenWhereTheyAreSet(t *testing.T) {
	var limit *int
	table := func() setting.Table {
		return setting.Table{setting.Opt("limit", setting.Pointer(&limit, func(n *int) setting.Value { return setting.Whole(n).AtLeast(0) }), "")}
	}
	for _, want := range []string{"", "limit: 0\n", "limit: 7\n"} {
		if err := readInto(table(), want); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := setting.Write(&b, table(), nil, nil); err != nil || b.String() != want {
			t.Errorf("written %q, %v, want %q", b.String(), err, want)
		}
		now := map[string]string{}
		table().Currents("", now)
		if got := now["limit"]; got != strings.TrimSpace(strings.TrimPrefix(want, "limit:")) {
			t.Errorf("of %q the value is %q", want, got)
		}
	}
	if err := readInto(table(), "limit: -1\n"); err == nil || *limit != 7 {
		t.Errorf("-1 gives %v and leaves %d", err, *limit)
	}
}

func readInto(table setting.Table, text string) error {
	d := yaml.NewDecoder("f")
	if text != "" {
		d.Decode([]byte(text), table)
	}
	return d.Err()
}
