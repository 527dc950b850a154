package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Start writes the configuration, starts vsftpd, and returns when it listens. A missing program is a *quell.UserError.
func (v *Vsftpd) Start(ctx context.Context) error {
	if v.run != nil {
		return errors.New("this vsftpd has been started already")
	}
	program, err := findVsftpd()
	if err != nil {
		return err
	}
	if v.Port == 0 {
		v.Port = 21
	}
	if err := v.write(); err != nil {
		return fmt.Errorf("preparing vsftpd: %w", err)
	}
	v.finish, v.force = syscall.SIGTERM, syscall.SIGKILL
	return v.start(ctx, func() (*process, error) {
		return launch(v.Place, v.Dir, "vsftpd", syscall.SIGTERM, program, filepath.Join(v.Dir, "vsftpd.conf"))
	}, v.Port)
}

// findVsftpd returns the path of vsftpd, which may be where only root's search path leads.
func findVsftpd() (string, error) {
	const usual = "/usr/sbin/vsftpd"
	if path, err := exec.LookPath("vsftpd"); err == nil {
		return path, nil
	}
	if _, err := os.Stat(usual); err == nil {
		return usual, nil
	}
	return "", needPrograms("vsftpd")
}

func (v *Vsftpd) write() (err error) {
	if v.Dir, err = filepath.Abs(v.Dir); err != nil {
		return err
	}
	for _, folder := range []string{v.Content(), filepath.Join(v.Dir, "empty")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	if err := writeFiles("vsftpd", v.Content(), v.Files); err != nil {
		return err
	}
	text := fmt.Sprintf(vsftpdConfiguration, v.Place.address, v.Port, v.Content(), filepath.Join(v.Dir, "empty"))
	return os.WriteFile(filepath.Join(v.Dir, "vsftpd.conf"), []byte(text), 0o600)
}

// vsftpdConfiguration serves files to anonymous users, who are the user ftp that its package makes, and may write nothing. No value may be
// followed by spaces.
const vsftpdConfiguration = `listen=YES
listen_address=%s
listen_port=%d
background=NO
anonymous_enable=YES
no_anon_password=YES
local_enable=NO
write_enable=NO
anon_root=%s
anon_world_readable_only=NO
secure_chroot_dir=%s
nopriv_user=nobody
isolate=NO
isolate_network=NO
seccomp_sandbox=NO
tcp_wrappers=NO
connect_from_port_20=NO
port_enable=NO
xferlog_enable=NO
idle_session_timeout=600
`
