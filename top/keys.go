package top

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/terminal"
	"github.com/quellhq/quell/setting"
	"github.com/quellhq/quell/tell"
)

// prompt is a question to the person: first perhaps for a share, then whether a command shall be sent.
type prompt struct {
	service int
	cmd     bus.Command
	what    string // what the command does
	typing  bool
	text    string // typed so far
	mistake string
}

// longestShare limits what can be typed.
const longestShare = 20

func (p *prompt) line() string {
	if !p.typing {
		return p.what + "? y/n"
	}
	text := fmt.Sprintf("share of %s, 0%% to 100%% or 0 to 1, or clear (enter, esc): %s_", p.cmd.Instance, p.text)
	if p.mistake != "" {
		text = p.mistake + "; " + text
	}
	return text
}

// effect is what a key asks for beyond another picture.
type effect int

const (
	nothing effect = iota
	quit
	suspend
	send // the command that was confirmed
)

// press changes the screen by a key, as bubbletea names keys. The command is only set for send; it is for the service with that number.
func (s *screen) press(key string) (e effect, service int, cmd bus.Command) {
	switch key {
	case "ctrl+c":
		return quit, 0, cmd
	case "ctrl+z":
		return suspend, 0, cmd
	}
	if s.prompt != nil {
		return s.answer(key)
	}
	s.message = ""
	switch key {
	case "q":
		return quit, 0, cmd
	case "?", "h":
		s.help = !s.help
	case "esc":
		s.help = false
	case "s":
		s.sort((s.by + 1) % orders)
	case "S":
		s.sort((s.by + orders - 1) % orders)
	case "tab", "right":
		s.chosen = (s.chosen + 1) % len(s.services)
	case "shift+tab", "left":
		s.chosen = (s.chosen + len(s.services) - 1) % len(s.services)
	default:
		if !s.move(key) {
			s.ask(key)
		}
	}
	return nothing, 0, cmd
}

// move moves the cursor; false if the key does not.
func (s *screen) move(key string) bool {
	sv, page := &s.services[s.chosen], max(1, s.height/2)
	by, ok := map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -page, "pgdown": page, "home": -len(sv.rows),
		"end": len(sv.rows)}[key]
	if ok {
		sv.cursor = max(0, min(sv.cursor+by, len(sv.rows)-1))
	}
	return ok
}

// ask asks whether a command shall be sent.
func (s *screen) ask(key string) {
	name := map[string]bus.CommandName{"p": bus.Pause, "r": bus.Resume, "o": bus.Override, "d": bus.Drain, "u": bus.Undrain}[key]
	if name == "" {
		return
	}
	sv := &s.services[s.chosen]
	p := prompt{service: s.chosen, cmd: bus.Command{Name: name}}
	if name != bus.Pause && name != bus.Resume {
		row := sv.selected()
		if row == nil {
			s.message = "no instance is selected"
			return
		}
		p.cmd.Instance = row.ID
	}
	switch name {
	case bus.Pause:
		p.what = "pause " + sv.name + ": what is in force stays until resume"
	case bus.Resume:
		p.what = "resume " + sv.name + ": decisions are carried out again"
	case bus.Drain:
		p.what = "drain " + p.cmd.Instance + ": it gets no new requests until undrain"
	case bus.Undrain:
		p.what = "undrain " + p.cmd.Instance + ": it is put back in rotation"
	case bus.Override:
		p.typing = true
	}
	s.prompt = &p
}

// answer handles a key while a question is open.
func (s *screen) answer(key string) (e effect, service int, cmd bus.Command) {
	p := s.prompt
	switch {
	case p.typing:
		s.typed(key)
		return nothing, 0, cmd
	case key == "y" || key == "Y":
		s.prompt, s.message = nil, "sent, waiting for an answer"
		return send, p.service, p.cmd
	}
	s.prompt, s.message = nil, "nothing was sent"
	return nothing, 0, cmd
}

// typed handles a key while a share is typed.
func (s *screen) typed(key string) {
	p := s.prompt
	switch key {
	case "esc":
		s.prompt, s.message = nil, "nothing was sent"
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(p.text)
		p.text = p.text[:len(p.text)-n]
	case "enter":
		p.finish()
	default:
		if r := []rune(key); len(r) == 1 && terminal.Shown(r[0]) && len(p.text) < longestShare {
			p.text += key
		}
	}
}

// finish reads what was typed. If it is a share, the question whether to send it comes next.
func (p *prompt) finish() {
	text := strings.TrimSpace(p.text)
	if text == "clear" {
		p.typing, p.cmd.Name, p.what = false, bus.Clear, "let the policy set the share of "+p.cmd.Instance+" again"
		return
	}
	share, err := setting.ParseShare(text)
	if err != nil || !(share >= 0 && share <= 1) {
		p.mistake, p.text = fmt.Sprintf("%q is no share", text), ""
		return
	}
	p.typing, p.cmd.Weight, p.what = false, &share, fmt.Sprintf("set the share of %s to %.3g%%", p.cmd.Instance, 100*share)
}

// sort sorts every service's rows; the cursors stay at their instances.
func (s *screen) sort(by order) {
	s.by = by
	for i := range s.services {
		s.services[i].arrange(by, s)
	}
}

// arrange sorts the rows of a status. The cursor stays at its instance, or at its place if that has gone.
func (sv *service) arrange(by order, s *screen) {
	if sv.status == nil {
		return
	}
	id := ""
	if row := sv.selected(); row != nil && sv.cursor > 0 { // at the top it stays at the top
		id = row.ID
	}
	w := tell.Of(sv.status, s.clock)
	sv.rows = sorted(&w, by)
	if i := slices.IndexFunc(sv.rows, func(row *controller.InstanceStatus) bool { return row.ID == id }); i >= 0 {
		sv.cursor = i
	}
	sv.cursor = max(0, min(sv.cursor, len(sv.rows)-1))
}
