package scenario

import (
	"io"

	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/setting"
)

// Load reads and parses a scenario file.
func Load(path string) (*Scenario, error) {
	sc, _, err := Read(path)
	return sc, err
}

// Read reads and parses a scenario file like Load, and also returns the file's text, which InFile needs.
func Read(path string) (*Scenario, []byte, error) {
	data, err := yaml.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	sc, err := Parse(path, data)
	return sc, data, err
}

// Reference prints a Markdown table of every key of a scenario file: key, default, meaning.
func Reference(w io.Writer) error { return setting.Print(w, newFile().keys()) }
