package middleware

import "syscall"

// PHPFPM is the process manager of PHP. After USR2 it starts anew and keeps its sockets. Requests in progress finish if
// process_control_timeout is set.
var PHPFPM = kindOf(&server{
	name: "php-fpm", known: []string{"pm.max_children"}, programs: []string{"php-fpm"}, signal: syscall.SIGUSR2,
	line: func(name string) string {
		return `(?m)^([ \t]*` + name + `[ \t]*=[ \t]*"?)([^ \t\r\n";]+)("?[ \t\r]*(?:;.*)?)$`
	},
}, "pm.max_children")
