package bus

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell/bus/auth"
	"github.com/quellhq/quell/bus/pack"
	"github.com/quellhq/quell/internal/need"
)

func TestCommandsAreAnswered(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	asked := make(chan Command, 1)
	stop, err := connect(t, Options{Server: s}).Serve("video", func(_ context.Context, cmd Command) Reply {
		asked <- cmd
		return Reply{Body: json.RawMessage(`{"paused":true}`)}
	})
	if err != nil {
		t.Fatal(err)
	}
	client := connect(t, as(s, ring, auth.Operator, "anna"))
	weight := 0.25
	want := Command{Name: Override, Instance: "i1", Weight: &weight, By: "root"} // the sender cannot choose its own name
	reply, err := client.Ask(t.Context(), "video", want)
	want.By, want.From = "anna@"+auth.HostOf("127.0.0.1"), auth.Grant{Role: auth.Operator, Service: "video", ID: "anna"}
	if err != nil || reply.Error != "" || string(reply.Body) != `{"paused":true}` {
		t.Errorf("answer %+v, %v", reply, err)
	}
	if got := receive(t, asked); !reflect.DeepEqual(got, want) {
		t.Errorf("asked %+v, want %+v", got, want)
	}
	stop()
	_, err = client.Ask(t.Context(), "video", Command{Name: Status})
	wantWords(t, err, "no controller answers", `"video"`, s.URL(), "is `quell controller` running?")
}

func TestNobodyAnswers(t *testing.T) {
	s, ring := guarded(t, ServerOptions{})
	_, err := connect(t, as(s, ring, auth.Operator, "anna")).Ask(t.Context(), "video", Command{Name: Status})
	wantWords(t, err, `no controller answers for service "video" on `+s.URL())

	away := "nats://" + need.FreeAddress(t)
	_, err = connect(t, Options{URL: away}).Ask(t.Context(), "video", Command{Name: Status})
	wantWords(t, err, "no controller answers", "is `quell controller` running?", "not connected", away)
}

// standby serves a controller that does not lead. It closes answered when its first answer has passed through the server.
func standby(t *testing.T, c *Conn) (answered chan struct{}) {
	t.Helper()
	answered = make(chan struct{})
	var once sync.Once
	_, err := c.nc.Subscribe(auth.Inboxes+".>", func(*nats.Msg) { once.Do(func() { close(answered) }) })
	if err != nil {
		t.Fatal(err)
	}
	stop, err := c.Serve("video", func(context.Context, Command) Reply { return Reply{Standby: true, Error: "another one leads"} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return answered
}

// TestTheLeaderIsWaitedFor asks two controllers, of which the one that does not lead answers first.
func TestTheLeaderIsWaitedFor(t *testing.T) {
	c := embedded(t)
	answered := standby(t, c)
	stop, err := c.Serve("video", func(context.Context, Command) Reply {
		<-answered
		return Reply{Body: json.RawMessage(`{"done":"paused"}`)}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	reply, err := c.Ask(t.Context(), "video", Command{Name: Pause})
	if err != nil || reply.Error != "" || string(reply.Body) != `{"done":"paused"}` {
		t.Errorf("answer %+v, %v", reply, err)
	}
}

func TestNobodyLeads(t *testing.T) {
	c := embedded(t)
	standby(t, c)
	for wait := 50 * time.Millisecond; ; wait *= 2 { // until it suffices for the first answer
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		reply, err := c.Ask(ctx, "video", Command{Name: Pause})
		cancel()
		if err != nil && wait < patience {
			continue
		}
		if err != nil || !reply.Standby {
			t.Errorf("answer %+v, %v", reply, err)
		}
		wantWords(t, errorOf(reply), "another one leads", "No other controller has answered")
		return
	}
}

// TestAnswersThatArriveInTurns gets the parts of two controllers' answers in turns.
func TestAnswersThatArriveInTurns(t *testing.T) {
	c := embedded(t)
	body, err := json.Marshal(noise(1, 2*pack.ChunkBytes))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(Reply{Body: body})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.nc.Subscribe("quell.video.command.>", func(m *nats.Msg) {
		one, err1 := c.messages(m.Reply, text)
		other, err2 := c.messages(m.Reply, text)
		if err := errors.Join(err1, err2); err != nil || len(one) < 2 {
			t.Errorf("%d messages, %v", len(one), err)
		}
		for i := range one {
			if err := errors.Join(c.nc.PublishMsg(one[i]), c.nc.PublishMsg(other[i])); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := c.Ask(t.Context(), "video", Command{Name: Status})
	if err != nil || string(reply.Body) != string(body) {
		t.Errorf("answer of %d bytes, %v; want %d bytes", len(reply.Body), err, len(body))
	}
}

func TestALateAnswerIsNotWaitedForEver(t *testing.T) {
	c := embedded(t)
	entered := make(chan struct{})
	stop, err := c.Serve("video", func(ctx context.Context, _ Command) Reply {
		close(entered)
		<-ctx.Done() // the handler does not return until stop is called
		return Reply{}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Ask(ctx, "video", Command{Name: Status})
	wantWords(t, err, "did not answer in time")
	receive(t, entered)
	stop()
}

func TestBadCommands(t *testing.T) {
	heavy, light := 1.5, -0.1
	for why, cmd := range map[string]Command{
		"unknown command":          {Name: "reboot"},
		"an instance and a weight": {Name: Override, Instance: "i1"},
		"1.5":                      {Name: Override, Instance: "i1", Weight: &heavy},
		"-0.1":                     {Name: Override, Instance: "i1", Weight: &light},
	} {
		c := embedded(t)
		_, err := c.Ask(t.Context(), "video", cmd)
		wantUserError(t, err, why)

		data, err := json.Marshal(cmd)
		if err != nil {
			t.Fatal(err)
		}
		_, err = decodeCommand(data)
		wantWords(t, err, why)
	}
}

func TestCommandsAreDecodedStrictly(t *testing.T) {
	for _, data := range []string{"", "null", "{}", `{"name":"status","wieght":1}`, `{"name":"status"}x`,
		`{"name":"status","instance":"` + strings.Repeat("x", 300) + `"}`, strings.Repeat(" ", maxCommand) + `{"name":"status"}`} {
		if _, err := decodeCommand([]byte(data)); err == nil {
			t.Errorf("%q is not refused", data)
		}
	}
}

type replyError string

func (e replyError) Error() string { return string(e) }

func errorOf(r Reply) error {
	if r.Error == "" {
		return nil
	}
	return replyError(r.Error)
}

func TestALargeAnswerTakesSeveralMessages(t *testing.T) {
	c := embedded(t)
	body, err := json.Marshal(noise(1, 4<<20)) // in base64
	if err != nil {
		t.Fatal(err)
	}
	stop, err := c.Serve("video", func(context.Context, Command) Reply { return Reply{Body: body} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	reply, err := c.Ask(t.Context(), "video", Command{Name: Status})
	if err != nil || string(reply.Body) != string(body) {
		t.Errorf("answer of %d bytes, %v; want %d bytes", len(reply.Body), err, len(body))
	}
}

func TestAnAnswerThatCannotBeEncoded(t *testing.T) {
	c := embedded(t)
	stop, err := c.Serve("video", func(context.Context, Command) Reply { return Reply{Body: json.RawMessage("{")} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	reply, err := c.Ask(t.Context(), "video", Command{Name: Status})
	if err != nil {
		t.Fatal(err)
	}
	wantWords(t, errorOf(reply), "cannot be encoded")
}

// Only some commands can have an end, and it must be within bounds.
func TestTheTimeOfACommandIsChecked(t *testing.T) {
	half := 0.5
	override := func(s float64) Command { return Command{Name: Override, Instance: "i1", Weight: &half, ForS: s} }
	for name, c := range map[string]struct {
		cmd  Command
		want string
	}{
		"none":                 {override(0), ""},
		"a minute":             {override(60), ""},
		"a month":              {override(30 * 24 * 3600), ""},
		"a year":               {override(365 * 24 * 3600), "at most"},
		"negative":             {override(-1), "at least 1s"},
		"not a number":         {override(math.NaN()), "at least 1s"},
		"infinite":             {override(math.Inf(1)), "at most"},
		"of a drain":           {Command{Name: Drain, Instance: "i1", ForS: 60}, ""},
		"of a level":           {Command{Name: Authority, Level: "step", ForS: 60}, ""},
		"of what is earned":    {Command{Name: Authority, ForS: 60}, "only a level can have an end"},
		"of a pause":           {Command{Name: Pause, ForS: 60}, "pause has no end"},
		"without the instance": {Command{Name: Override, Weight: &half, ForS: 60}, "needs an instance"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.cmd.Check()
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantWords(t, err, c.want)
		})
	}
}
