package config

import (
	"io"

	"github.com/quellhq/quell/setting"
)

// Reference prints a Markdown table of every key of a configuration file: key, default, meaning.
func (t Drivers) Reference(w io.Writer) error {
	f := t.Defaults()
	return setting.Print(w, t.fileKeys(&f))
}

// Schema writes the JSON Schema of a configuration file.
func (t Drivers) Schema(w io.Writer) error {
	f := t.Defaults()
	return setting.Schema(w, "Configuration of Quell", t.fileKeys(&f))
}

// WriteDefaults writes a configuration file in which every key that has a default value has it.
func (t Drivers) WriteDefaults(w io.Writer) error {
	f := t.Defaults()
	return setting.Write(w, t.fileKeys(&f), nil, nil)
}
