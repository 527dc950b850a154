package kernel

import (
	"fmt"
	"strings"
)

// Program is a real program that a neighbour runs. Unlike an interferer, which uses a share of one resource, it uses several resources, and
// as much of them as it gets.
type Program string

// The programs of neighbours.
const (
	Compile  Program = "compile"  // gcc translates a large file again and again: processor, caches
	KeyValue Program = "keyvalue" // Redis answers clients on the other side of the link with values of 16 KiB: network
	Pgbench  Program = "pgbench"  // PostgreSQL under the transactions of pgbench: disk writes, processor
	Sort     Program = "sort"     // sorts read a file past the cache, and write it sorted past the cache: disk, processor
)

// Programs lists all programs.
var Programs = []Program{Compile, KeyValue, Pgbench, Sort}

// compiledFile is a C file with many functions. It is the same on every machine.
func compiledFile() []byte {
	const functions = 600
	var b strings.Builder
	b.WriteString("/* made by Quell's lab, to be compiled */\n")
	for n := range functions {
		fmt.Fprintf(&b, "int f%d(int *a, int n) {\n  int s = %d;\n  for (int i = 0; i < n; i++)\n    for (int j = i; j < n; j += %d)\n"+
			"      s += a[j] * (a[i] - %d) ^ (s >> %d);\n  return n > 1 ? s + f%d_next(a, n / 2) : s;\n}\n", n, n, 1+n%7, n%91, 1+n%13, n)
	}
	return []byte(strings.Join([]string{declarations(functions), b.String()}, "\n"))
}

func declarations(functions int) string {
	var b strings.Builder
	for n := range functions {
		fmt.Fprintf(&b, "int f%d_next(int *a, int n);\n", n)
	}
	return b.String()
}

// benchStatements make the tables of pgbench at scale 1.
const benchStatements = `CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88));

CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84));

CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84));

CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));

INSERT INTO pgbench_branches VALUES (1, 0, '');

INSERT INTO pgbench_tellers SELECT n, 1, 0, '' FROM generate_series(1, 10) n;

INSERT INTO pgbench_accounts SELECT n, 1, 0, '' FROM generate_series(1, 100000) n;

VACUUM ANALYZE;

`
