package local

import (
	"context"
	"testing"
	"time"
)

func TestKeepBusyStaysWithinItsBudget(t *testing.T) {
	for _, o := range []BusyOptions{
		{Processors: 1, Window: 10 * time.Millisecond, Budget: 60 * time.Millisecond},
		{Processors: 3, Window: 10 * time.Millisecond, Budget: 60 * time.Millisecond},
		{Processors: 2, Window: time.Hour, Budget: 20 * time.Millisecond},
	} {
		var used time.Duration
		err := KeepBusy(t.Context(), o, func(w Work) bool {
			used += w.Used
			if w.Elapsed <= 0 || w.Used < 0 || w.Used > 0 && w.Rounds <= 0 {
				t.Errorf("%+v: a window of %+v", o, w)
			}
			return true
		})
		if err != nil || used > o.Budget {
			t.Errorf("%+v: used %v, %v", o, used, err)
		}
	}
}

func TestKeepBusyEndsWhenAsked(t *testing.T) {
	o := BusyOptions{Processors: 2, Window: time.Millisecond, Budget: time.Hour}
	windows := 0
	if err := KeepBusy(t.Context(), o, func(Work) bool { windows++; return windows < 3 }); err != nil || windows != 3 {
		t.Errorf("%d windows, %v", windows, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	if err := KeepBusy(ctx, o, func(Work) bool { stop(); return true }); err != nil {
		t.Error(err)
	}
	for _, o := range []BusyOptions{
		{Processors: 1, Window: time.Second}, {Processors: 4, Window: time.Second, Budget: time.Microsecond},
		{Processors: 0, Window: time.Second, Budget: time.Hour}, {Processors: 1, Budget: time.Hour},
	} {
		if err := KeepBusy(t.Context(), o, nil); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}
