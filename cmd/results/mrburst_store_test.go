package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quellhq/quell/lab/testbed/kernel"
)

// A user signs each request, and notices errors and objects that come in part only.
func TestStoreSession(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="+kernel.StoreUser+"/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		switch r.URL.Path {
		case "/" + kernel.StoreBucket + "/whole":
			_, _ = w.Write([]byte("object"))
		case "/" + kernel.StoreBucket + "/part":
			w.Header().Set("Content-Length", "10")
			_, _ = w.Write([]byte("half"))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	s := newStoreSession(t.Context(), strings.TrimPrefix(server.URL, "http://"), func(address string) (net.Conn, error) {
		return net.Dial("tcp", address)
	})
	defer s.close()
	if err := s.get("whole"); err != nil {
		t.Error(err)
	}
	for object, want := range map[string]string{"part": "unexpected EOF", "none": "404"} {
		if err := s.get(object); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", object, err, want)
		}
	}
}
