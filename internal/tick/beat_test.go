package tick

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestALoopThatStandsStillIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Beat
		time.Sleep(time.Hour)
		if err := b.Late(time.Minute); err != nil {
			t.Errorf("a loop that has not begun: %v", err)
		}
		b.Mark()
		time.Sleep(time.Minute)
		if err := b.Late(time.Minute); err != nil {
			t.Errorf("after the limit: %v", err)
		}
		time.Sleep(time.Second)
		if err := b.Late(time.Minute); err == nil {
			t.Error("a second after the limit: no error")
		}
		b.Mark()
		if err := b.Late(time.Minute); err != nil {
			t.Errorf("as soon as the loop comes round again: %v", err)
		}
	})
}
