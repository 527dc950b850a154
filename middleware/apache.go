package middleware

import "syscall"

// Apache is Apache httpd. USR1 is its graceful restart: processes that serve requests finish them.
var Apache = kindOf(&server{
	name: "apache", known: []string{"MaxRequestWorkers", "KeepAliveTimeout"}, programs: []string{"apache2", "httpd"},
	signal: syscall.SIGUSR1, check: []string{"apachectl", "-t"},
	line: func(name string) string { return `(?mi)^([ \t]*` + name + `[ \t]+)([^ \t\r\n]+)([ \t\r]*)$` },
}, "MaxRequestWorkers and KeepAliveTimeout (seconds) of Apache httpd")
