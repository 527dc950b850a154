package config

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/setting"
)

// If a configuration file has mistakes, only these of its sections are read.
var (
	localPart   = []string{"data"}
	contactPart = []string{"service", "bus", "data"}
	hostPart    = append([]string{"sampling", "probe"}, contactPart...)
)

// LoadLocal reads what a command needs to reach an agent of this machine that runs a policy: the key data. Mistakes in the rest of
// the file are returned as in LoadContacts.
func (t Drivers) LoadLocal(path string) (*File, setting.Problems, error) {
	data, err := yaml.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	return t.parsePart(path, data, localPart)
}

// LoadHost reads what an emulated machine needs to know about its service: the sections service, bus, data, sampling and probe.
// Mistakes in the rest of the file do not stop the machine; they are returned as in LoadContacts.
func (t Drivers) LoadHost(path string) (*File, setting.Problems, error) {
	data, err := yaml.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	return t.parsePart(path, data, hostPart)
}

// parsePart reads only the named sections of a file. A mistake in these sections is an error; mistakes in others are returned as
// problems.
func (t Drivers) parsePart(name string, data []byte, part []string) (*File, setting.Problems, error) {
	f := t.Defaults()
	f.Path = name
	d := yaml.NewDecoder(name)
	if !d.Decode(data, t.fileKeys(&f)) {
		return t.parsePartAlone(name, data, part, d)
	}
	t.require(d, &f)
	if f.Local() && slices.Contains(part, "service") && d.Sound("service") {
		return nil, nil, errLocal(name)
	}
	if !d.Sound(part...) { // whether these sections contradict others matters only to the processes
		return nil, nil, d.Err()
	}
	f.derive(d)
	checkFile(d, &f)
	f.resolve(filepath.Dir(name))
	return &f, d.Problems(), nil
}

// parsePartAlone reads the named sections of a file that as a whole is not valid YAML.
func (t Drivers) parsePartAlone(name string, data []byte, part []string, whole *setting.Decoder) (*File, setting.Problems, error) {
	f := t.Defaults()
	f.Path = name
	table := slices.DeleteFunc(t.fileKeys(&f), func(k setting.Key) bool { return !slices.Contains(part, k.Name) })
	d := yaml.NewDecoder(name)
	read := d.Decode([]byte(onlySections(string(data), table.Names())), table)
	d.Require(slices.DeleteFunc(required(ServiceKeys(&f.Service)), func(k setting.Key) bool { return !slices.Contains(part, k.Name) })...)
	if !read || !d.Sound(part...) {
		return nil, nil, whole.Err()
	}
	mistakes := append(whole.Problems(), d.Problems()...)
	mistakes.Sort()
	f.resolve(filepath.Dir(name))
	return &f, mistakes, nil
}

var sectionStart = regexp.MustCompile(`^["']?([A-Za-z_]+)["']?[ \t]*:`)

// onlySections empties every line that does not belong to one of the named top-level keys. Line numbers stay the
// same.
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
