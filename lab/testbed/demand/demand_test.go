package demand

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/loadgen"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]Demand{
		"": {}, "class=home": {}, "cpu=&bytes=": {},
		"class=home&cpu=5000us&disk=2&memory=300us&bytes=1000": {5 * time.Millisecond, 2, 300 * time.Microsecond, 1000},
		"cpu=1m&disk=100000&memory=0s&bytes=1099511627776":     {time.Minute, MostDisk, 0, mostBytes},
	} {
		query, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Of(query); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, key := range map[string]string{
		"cpu=much": "cpu", "cpu=5": "cpu", "cpu=-1us": "cpu", "cpu=61s": "cpu", "memory=1h": "memory", "memory=NaN": "memory",
		"disk=1.5": "disk", "disk=-1": "disk", "disk=100001": "disk", "bytes=1KB": "bytes", "bytes=99999999999999": "bytes", "bytes=-1": "bytes",
	} {
		query, _ := url.ParseQuery(text)
		_, err := Of(query)
		var invalid *quell.InvalidError
		if !errors.As(err, &invalid) || invalid.Path != key || !strings.Contains(err.Error(), "give a") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The server reads exactly the demands that the generator wrote into a request.
func TestOfWhatLoadgenSends(t *testing.T) {
	mix, err := loadgen.NewMix([]loadgen.Class{{Name: "home", Share: 1, CPU: 5 * time.Millisecond, Disk: 2, Memory: 300 * time.Microsecond,
		Network: 1000}}, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	q, _ := mix.Visits("")(0).Next(0)
	u, err := url.Parse(q.Path)
	if err != nil {
		t.Fatal(err)
	}
	want := Demand{5 * time.Millisecond, 2, 300 * time.Microsecond, 1000}
	if got, err := Of(u.Query()); err != nil || got != want || got.Bytes != q.Bytes {
		t.Errorf("%s: %+v, %v", q.Path, got, err)
	}
}

func FuzzOf(f *testing.F) {
	f.Add("cpu=5000us&disk=2&memory=300us&bytes=1000")
	f.Fuzz(func(t *testing.T, text string) {
		query, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		d, err := Of(query)
		if d.CPU < 0 || d.CPU > MostTime || d.Memory < 0 || d.Memory > MostTime || d.Disk < 0 || d.Disk > MostDisk || d.Bytes < 0 ||
			d.Bytes > mostBytes {
			t.Errorf("%q: %+v, %v", text, d, err)
		}
	})
}

func TestContent(t *testing.T) {
	c := NewContent()
	for _, size := range []int{0, 1, block - 1, block, 3*block + 7} {
		reply := httptest.NewRecorder()
		c.Serve(reply, httptest.NewRequest(http.MethodGet, "/", nil), int64(size))
		want := make([]byte, size)
		for i := range want {
			want[i] = Byte(int64(i))
		}
		if !bytes.Equal(reply.Body.Bytes(), want) {
			t.Errorf("%d bytes of %d, or others", reply.Body.Len(), size)
		}
	}
	reply := httptest.NewRecorder()
	c.Serve(reply, httptest.NewRequest(http.MethodHead, "/", nil), 1000)
	if reply.Body.Len() != 0 || reply.Header().Get("Content-Length") != "1000" {
		t.Errorf("HEAD: %d bytes, %v", reply.Body.Len(), reply.Header())
	}
}
