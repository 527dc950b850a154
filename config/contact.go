package config

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/quellhq/quell/config/keys"
)

// LoadContact reads what a command needs to reach the controller of a service: service, bus and data. Mistakes in the
// rest of the file do not stop it: pause and override must work while somebody is still editing. They are returned
// beside the file. An error says that service or bus themselves cannot be read, and lists every mistake.
func LoadContact(path string) (*File, keys.Problems, error) {
	data, err := keys.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	return ParseContact(path, data)
}

// ParseContact is LoadContact for a file that was read already. Only Path, Service.Name, Bus and Data of the result
// are to be relied on.
func ParseContact(name string, data []byte) (*File, keys.Problems, error) {
	f := defaults()
	f.Path = name
	d := keys.NewDecoder(name)
	if !d.Decode(data, fileKeys(&f)) {
		return parseContactAlone(name, data, d)
	}
	if !d.Sound("service", "bus") { // what these keys agree on with others matters to a process only
		return nil, nil, d.Err()
	}
	f.derive(d)
	checkFile(d, &f)
	f.resolve(filepath.Dir(name))
	return &f, d.Problems(), nil
}

// parseContactAlone reads service, bus and data out of a file that is no valid YAML as a whole.
func parseContactAlone(name string, data []byte, whole *keys.Decoder) (*File, keys.Problems, error) {
	f := defaults()
	f.Path = name
	table := contactKeys(&f)
	d := keys.NewDecoder(name)
	if !d.Decode([]byte(onlySections(string(data), table.Names())), table) || !d.Sound("service", "bus") {
		return nil, nil, whole.Err()
	}
	mistakes := append(whole.Problems(), d.Problems()...)
	mistakes.Sort()
	f.resolve(filepath.Dir(name))
	return &f, mistakes, nil
}

// contactKeys is the part of fileKeys that leads to a controller.
func contactKeys(f *File) keys.Table {
	return slices.DeleteFunc(fileKeys(f), func(k keys.Key) bool { return !slices.Contains([]string{"service", "bus", "data"}, k.Name) })
}

var sectionStart = regexp.MustCompile(`^["']?([A-Za-z_]+)["']?[ \t]*:`)

// onlySections empties every line that does not belong to one of the named keys at the left margin. Places stay as
// they are in the file.
func onlySections(text string, names []string) string {
	lines := strings.Split(text, "\n")
	keep := false
	for i, line := range lines {
		if inside := line == "" || strings.ContainsRune(" \t\r#-", rune(line[0])); !inside {
			start := sectionStart.FindStringSubmatch(line)
			keep = start != nil && slices.Contains(names, start[1])
		}
		if !keep {
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n")
}
