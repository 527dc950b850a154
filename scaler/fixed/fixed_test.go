package fixed

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

var fleet = []quell.Member{
	{ID: "a", Address: "10.0.0.1:80", Probe: "10.0.0.1:8700", State: quell.Failed},
	{ID: "b", Address: "[fd00::2]:80"},
}

func TestFleetStaysAsItIs(t *testing.T) {
	d, err := New(fleet)
	if err != nil {
		t.Fatal(err)
	}
	first, err := d.Members(t.Context())
	if err != nil || len(first) != 2 {
		t.Fatalf("members = %v, %v", first, err)
	}
	first[1].State = quell.Draining // a caller's copy
	again, _ := d.Members(t.Context())
	for i, m := range again {
		want := fleet[i]
		want.State = quell.Ready
		if m != want {
			t.Errorf("member %d = %+v", i, m)
		}
	}
	if _, err := d.Start(t.Context(), 1); !errors.Is(err, ErrFixed) {
		t.Errorf("Start = %v", err)
	}
	if err := d.Stop(t.Context(), []string{"a"}); !errors.Is(err, ErrFixed) {
		t.Errorf("Stop = %v", err)
	}
}

func TestMistakesComeTogether(t *testing.T) {
	_, err := New([]quell.Member{
		{Address: "h:1"},
		{ID: "a", Address: "h"},
		{ID: "a", Address: "h:1"},
		{ID: "b", Address: ":1"},
		{ID: "c", Address: "h:1", Probe: "h"},
	})
	var mistake *quell.UserError
	if !errors.As(err, &mistake) {
		t.Fatalf("New = %v", err)
	}
	for _, part := range []string{
		"instances[0]: id: missing", `address of a: must be an address as in 127.0.0.1:8080, is "h"`, `instances[2]: id: "a" is given twice`, `address of b`, "probe of c",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not mentioned in: %v", part, err)
		}
	}
}

// The controller declares this interface; packages of drivers do not import it.
var _ interface {
	Members(context.Context) ([]quell.Member, error)
	Start(context.Context, int) ([]string, error)
	Stop(context.Context, []string) error
} = (*Driver)(nil)
