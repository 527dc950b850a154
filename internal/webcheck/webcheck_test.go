package webcheck

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFill(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "http://10.0.0.11:80/healthz", nil)
	(&Request{}).Fill(req)
	if req.Host != "10.0.0.11:80" {
		t.Errorf("Host is %q", req.Host)
	}
	(&Request{Host: "shop.example", Headers: []string{"X-Forwarded-Proto: https", "Accept:*/*"}}).Fill(req)
	if req.Host != "shop.example" || req.Header.Get("X-Forwarded-Proto") != "https" || req.Header.Get("Accept") != "*/*" {
		t.Errorf("%q, %v", req.Host, req.Header)
	}
}

// 400 and 421 are how servers refuse a Host that they do not know.
func TestRefused(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "http://10.0.0.11:80/healthz", nil)
	req.Host = ""
	for status, want := range map[int]bool{200: false, 400: true, 401: false, 404: false, 421: true, 500: false} {
		got := Refused(req, status, "balancer.health")
		named := strings.Contains(got, "`Host: 10.0.0.11:80`") && strings.Contains(got, "balancer.health.host")
		if (got != "") != want || want && !named {
			t.Errorf("%d: %q", status, got)
		}
	}
}

func TestFields(t *testing.T) {
	for field, wrong := range map[string]string{
		"X-Forwarded-Proto: https": "", "A:": "", "A: b: c": "", "no colon": "no header field", ": x": "no header field",
		"A b: c": "no header field", "A: b\r\nC: d": "one line", "host: x": "a key of its own",
	} {
		if got := fieldProblem(field); (got == "") != (wrong == "") || !strings.Contains(got, wrong) {
			t.Errorf("%q: %q", field, got)
		}
	}
	for host, ok := range map[string]bool{
		"shop.example": true, "shop.example:8080": true, "[::1]:80": true, "a b": false, "a/b": false, "": true,
	} {
		if got := HostProblem(host); (got == "") != ok {
			t.Errorf("%q: %q", host, got)
		}
	}
}
