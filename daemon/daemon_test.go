package daemon

import "testing"

func TestReachable(t *testing.T) {
	for listen, want := range map[string]string{
		"0.0.0.0:4222": "127.0.0.1:4222", ":4222": "127.0.0.1:4222", "[::]:4222": "127.0.0.1:4222",
		"10.0.0.1:4222": "10.0.0.1:4222", "bus.internal:4222": "bus.internal:4222",
	} {
		if got := reachable(listen); got != want {
			t.Errorf("%s is reached at %s, want %s", listen, got, want)
		}
	}
}
