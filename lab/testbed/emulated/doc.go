// Package emulated stands in for rented machines without needing privileges. One process is one physical machine: a network
// card with its own bandwidth, an instance of a service behind it that answers with a file, with chunks of a video or with a
// requested number of bytes, a probe server, and neighbours whose flows use part of the card. The instance is not told how
// much they use; only probes can detect it.
//
// Only the machine's outgoing link is emulated, shared equally among open responses. Incoming requests, the processor, disks
// and memory are those of the real machine.
package emulated
