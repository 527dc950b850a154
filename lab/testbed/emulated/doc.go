// Package emulated stands in for rented machines without any privilege: one process is one physical machine with a
// network card of its own bandwidth, an instance of a service behind it that answers with a file, with chunks of a video or
// with as many bytes as it is asked for, a probe server, and neighbours whose flows take part of the card. Nothing tells the
// instance how much they take; only a probe can feel it.
//
// What is emulated is the machine's outgoing link, shared equally among open responses. Requests coming in, the
// processor, disks and memory are not; they are those of the machine that the process runs on.
package emulated
