package kernel

import (
	"fmt"
	"net/http"
	"runtime"
	"time"
)

// Work is a small service bound by the processor: GET /work?cpu=5ms burns that much processor time (5 ms if it is left
// out) and then answers. GET /healthz answers at once.
func Work() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /work", work)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux
}

func work(w http.ResponseWriter, r *http.Request) {
	const most = 10 * time.Second
	span := 5 * time.Millisecond
	if text := r.URL.Query().Get("cpu"); text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil || span < 0 || span > most {
			http.Error(w, fmt.Sprintf("cpu=%q: give a processor time of at most %v, as in 5ms", text, most), http.StatusBadRequest)
			return
		}
	}
	if err := burn(span); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, span)
}

// burn uses that much processor time: its own thread's, so that waiting for a processor does not count.
func burn(span time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, err := threadTime()
	if err != nil {
		return err
	}
	var sink uint64 = 1
	for {
		for range 10_000 { // some microseconds between two looks at the clock
			sink = sink*6364136223846793005 + 1442695040888963407
		}
		runtime.KeepAlive(sink)
		now, err := threadTime()
		if err != nil || now-began >= span {
			return err
		}
	}
}
