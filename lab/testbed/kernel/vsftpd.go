package kernel

import "path/filepath"

// Vsftpd is a file server (FTP, anonymous users) in a place, with a configuration of its own.
type Vsftpd struct {
	Place Place
	Dir   string           // for configuration and files; each server needs its own, and all users must be able to enter it
	Port  int              // 0 means 21
	Files map[string]int64 // size in bytes by path
	server
}

// Content is the folder of the files.
func (v *Vsftpd) Content() string { return filepath.Join(v.Dir, "content") }
