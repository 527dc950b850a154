package include

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quellhq/quell/setting"
)

// Nobody is the address of the server that stands in a file while there is no instance: nginx refuses an upstream without servers.
const Nobody = "127.0.0.1:9"

// Server is a server of an upstream, as a line of the file declares it.
type Server struct {
	Address string // with its port
	Weight  int    // 1 if none is given
	Down    bool

	directive
}

// servers returns the servers among the directives. A weight that nginx would refuse is an error, because nothing else could be said of it.
func servers(list []directive) (found []*Server, err error) {
	for _, d := range list {
		if d.words[0] != "server" || len(d.words) < 2 {
			continue
		}
		s := &Server{directive: d, Address: WithPort(d.words[1]), Weight: 1, Down: slices.Contains(d.words[2:], "down")}
		for _, w := range d.words[2:] {
			number, given := strings.CutPrefix(w, "weight=")
			if !given {
				continue
			}
			if s.Weight, err = strconv.Atoi(number); err != nil || s.Weight < 1 {
				return nil, fmt.Errorf("line %d: %q is no weight of nginx", d.row, w)
			}
		}
		if k := slices.IndexFunc(found, func(o *Server) bool { return o.Address == s.Address }); k >= 0 {
			return nil, fmt.Errorf("line %d: %s is declared in line %d, too: remove one of them", s.row, s.Address, found[k].row)
		}
		found = append(found, s)
	}
	return found, nil
}

// Find returns the server with an address, or else one whose address stands for the same; nil if there is none.
func (f *File) Find(address string, same func(a, b string) bool) *Server {
	address = WithPort(address)
	i := slices.IndexFunc(f.Servers, func(s *Server) bool { return s.Address == address })
	if i < 0 {
		i = slices.IndexFunc(f.Servers, func(s *Server) bool { return same(s.Address, address) })
	}
	if i < 0 {
		return nil
	}
	return f.Servers[i]
}

// WithPort adds the port that nginx takes if none is written.
func WithPort(address string) string {
	host := address[strings.LastIndexByte(address, ']')+1:]
	if strings.HasPrefix(address, "unix:") || strings.Contains(host, ":") {
		return address
	}
	return address + ":80"
}

// IsAddress returns whether nginx reads a text as one word, and not as something else of its configuration.
func IsAddress(text string) bool {
	list, err := parse("server " + text + ";")
	return err == nil && len(list) == 1 && len(list[0].words) == 2 && list[0].words[1] == text
}

// Parameters returns what is wrong with a text that is to stand behind the addresses of servers; empty if nothing is.
func Parameters(text string) string {
	list, err := parse("server a " + text + ";")
	switch {
	case err != nil || len(list) != 1 || strings.Contains(text, "#"):
		return fmt.Sprintf("must be parameters of one server of an upstream, is %q", setting.Shorten(text))
	case slices.ContainsFunc(list[0].words, isSet):
		return "must not have weight= or down, which Quell sets"
	}
	return ""
}

// isSet returns whether a parameter is one that an Edit sets.
func isSet(word string) bool { return word == "down" || strings.HasPrefix(word, "weight=") }

// with returns the server's directive with another weight and state. All its other parameters stay, in their order.
func (s *Server) with(weight int, down bool) string {
	words := slices.DeleteFunc(slices.Clone(s.words), isSet)
	return line(words[1], weight, down, words[2:])
}

// line writes the directive of a server.
func line(address string, weight int, down bool, parameters []string) string {
	words := []string{"server", address}
	if weight != 1 {
		words = append(words, "weight="+strconv.Itoa(weight))
	}
	if down {
		words = append(words, "down")
	}
	return strings.Join(append(words, parameters...), " ") + ";"
}
