package bus

import (
	"context"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/bus/auth"
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
