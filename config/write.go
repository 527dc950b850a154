package config

import (
	"io"

	"github.com/quellhq/quell/config/keys"
)

// Write writes a configuration as a file that reads back to the same configuration. Keys that have their default are
// left out.
func (t Drivers) Write(w io.Writer, f *File) error {
	defaults := t.Defaults()
	return keys.Write(w, t.fileKeys(f), t.fileKeys(&defaults))
}
