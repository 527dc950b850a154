package kernel

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
)

func TestWork(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	for url, want := range map[string]int{
		"/work": http.StatusOK, "/work?cpu=1ms": http.StatusOK, "/healthz": http.StatusOK,
		"/work?cpu=much": http.StatusBadRequest, "/work?cpu=-1ms": http.StatusBadRequest, "/work?cpu=11s": http.StatusBadRequest,
	} {
		reply := httptest.NewRecorder()
		Work().ServeHTTP(reply, httptest.NewRequest(http.MethodGet, url, nil))
		if reply.Code != want {
			t.Errorf("%s: %d %s, want %d", url, reply.Code, reply.Body, want)
		}
	}
}

// What is burnt is processor time of the thread, however long that takes.
func TestBurn(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := threadTime()
	if err != nil {
		t.Fatal(err)
	}
	const span = 3 * time.Millisecond
	if err := burn(span); err != nil {
		t.Fatal(err)
	}
	if after, err := threadTime(); err != nil || after-before < span {
		t.Errorf("burnt %v, %v; want at least %v", after-before, err, span)
	}
}
