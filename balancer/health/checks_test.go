package health

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A controller that starts finds instances that serve. One that is added later may still be starting: while its first check hangs, it is
// not well.
func TestANewInstanceIsNotWellBeforeItsFirstCheck(t *testing.T) {
	booted := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-booted }))
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	c := NewChecks(ctx, Options{Path: "/", Interval: time.Hour, Timeout: time.Hour, Fall: 1, Rise: 1})
	defer c.Wait()
	defer stop()
	address := server.Listener.Addr().String()
	wellness := func() [3]bool {
		a, _ := c.Of("a")
		b, _ := c.Of("b")
		unknown, _ := c.Of("unknown")
		return [3]bool{a, b, unknown}
	}
	c.Follow(nil) // before the first plan there are none
	c.Follow(map[string]string{"a": address})
	c.Follow(map[string]string{"a": address, "b": address})
	if got := wellness(); got != [3]bool{true, false, true} {
		t.Errorf("a, b and an unknown one are well: %v", got)
	}
	close(booted)
	for deadline := time.Now().Add(10 * time.Second); wellness() != [3]bool{true, true, true}; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("10 s after the checks passed: %v", wellness())
		}
	}
}
