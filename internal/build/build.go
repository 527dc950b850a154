// Package build says from what the running program was built.
package build

import (
	"runtime"
	"runtime/debug"
)

// Version and Commit are set by the linker for releases.
var Version, Commit = "dev", ""

// Info says from what this program was built.
type Info struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`  // of the source; absent where it is not known
	Changed bool   `json:"changed,omitempty"` // the source had changes that were not committed
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// This describes this program.
func This() Info {
	b := Info{Version: Version, Commit: Commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "dev" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && b.Commit == "":
			b.Commit = s.Value
		case s.Key == "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
	return b
}
