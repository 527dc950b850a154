package config

import (
	"io"

	"github.com/quellhq/quell/setting"
)

// Write writes a configuration as a file; reading that file gives the same configuration. It leaves out keys at their default,
// unless they are in the file from which the configuration was read.
func (t Drivers) Write(w io.Writer, f *File) error {
	defaults := t.Defaults()
	var given func(string) bool
	if f.places != nil {
		given = f.places.Given
	}
	return setting.Write(w, t.fileKeys(f), t.fileKeys(&defaults), given)
}
