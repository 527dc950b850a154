package middleware

import (
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// counted makes the toy a server whose file may have words. It shows how many workers it has: the number that it has read, but running if
// it has read the content.
func (r *toy) counted(content string, running int) {
	r.t.Helper()
	r.sleeper()
	r.write(content)
	generation := 0
	kind := *r.server.Settings.server
	kind.line, kind.counts = Nginx.Defaults().server.line, "workers"
	kind.workers = func(int) (list []string) {
		n, has := running, content
		if r.reloads() > 0 {
			has = r.force()
		}
		if v, err := strconv.Atoi(strings.Fields(strings.ReplaceAll(has, ";", ""))[1]); err == nil && has != content {
			n = v
		}
		generation++
		for i := range n {
			list = append(list, strconv.Itoa(generation)+"."+strconv.Itoa(i))
		}
		return list
	}
	r.server.Settings.server = &kind
}

const words = "workers auto; # one for each processor\nother 5;\n"

// A server that runs with a word such as auto shows a number, which is the value of before. It may come back although it is outside the
// bounds, and then the word is back.
func TestAWordComesBack(t *testing.T) {
	r := newToy(t)
	r.counted(words, 64)
	r.server.Settings.Parameters[0].Max = 32
	d := r.open()
	r.inForce(d, map[string]float64{"workers": 64, "other": 5})
	r.set(d, "workers", 64) // it is in force
	r.has(words, false)
	r.set(d, "other", 6)
	r.set(d, "workers", 32)
	r.has("workers 32; # one for each processor\nother 6;\n", true)
	if err := d.Set(t.Context(), "workers", 63); err == nil || !strings.Contains(err.Error(), "63 is outside the bounds") {
		t.Errorf("%v", err)
	}
	r.set(d, "workers", 64)
	r.has("workers 64; # one for each processor\nother 6;\n", true)
	r.set(d, "other", 5)
	r.has(words, false)
	r.set(d, "workers", 32)
	r.set(d, "workers", 64)
	r.has(words, false)
	r.inForce(d, map[string]float64{"workers": 64, "other": 5})
	r.close(d)
}

// What the server showed also counts if it does not run with the file's number.
func TestAValueThatTheServerShowed(t *testing.T) {
	r := newToy(t)
	r.counted("workers 2;\nother 5;\n", 9)
	r.server.Settings.Parameters[0].Max = 8
	d := r.open()
	r.inForce(d, map[string]float64{"workers": 9, "other": 5})
	r.set(d, "workers", 8)
	r.set(d, "workers", 9)
	r.has("workers 9;\nother 5;\n", true)
	r.close(d)
	r.has("workers 2;\nother 5;\n", false)
}

// Records of agents that did not store what the server showed are read.
func TestARecordOfAnEarlierVersion(t *testing.T) {
	r := newToy(t)
	d := r.open()
	beside := d.files[r.config].beside("original")
	r.close(d)
	text := fmt.Sprintf(`{"original": %q, "wrote": [%q], "values": {"workers": 20}}`,
		base64.StdEncoding.EncodeToString([]byte(original)), sum(with(20)))
	if err := os.WriteFile(beside, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.write(with(20))
	d = r.open()
	r.has(original, false)
	r.close(d)
}

// What the operator wrote comes back, and not what the template makes of the same values.
func TestTheOriginalOfATemplateComesBack(t *testing.T) {
	r, _ := templated(t, sound)
	d := r.open()
	r.set(d, "workers", 20)
	r.set(d, "other", 7)
	r.set(d, "workers", 10)
	r.has("# from a template\nworkers 10\nother 7\n", true)
	r.set(d, "other", 5)
	r.has(original, false)
	r.inForce(d, map[string]float64{"workers": 10, "other": 5})
	reloads := r.reloads()
	r.close(d)
	if r.reloads() != reloads {
		t.Error("an agent that had changed everything back made a reload at its end")
	}
}

// If a person restarts the server just after a parameter has gone back to its original value, that value is not blamed.
func TestAnOriginalIsNotRefused(t *testing.T) {
	r := newToy(t)
	server := r.sleeper()
	d := r.watched(time.Nanosecond)
	r.set(d, "workers", 20)
	r.set(d, "other", 7)
	d.watching.Wait()
	d.settleTime, d.settleEvery = time.Hour, time.Hour
	r.set(d, "workers", 10)
	end(t, server)
	if d.look() {
		t.Error("the trial has ended")
	}
	r.has(strings.Replace(with(20), "other 5", "other 7", 1), true)
	r.sleeper()
	r.set(d, "workers", 10)
	r.has(strings.Replace(original, "other 5", "other 7", 1), true)
	r.close(d)
	r.has(original, false)
}
