package config

import (
	"io"

	"github.com/quellhq/quell/config/keys"
)

// Reference prints a Markdown table of every key of a configuration file: key, default, meaning.
func (t Drivers) Reference(w io.Writer) error {
	f := t.Defaults()
	return keys.Print(w, t.fileKeys(&f))
}
