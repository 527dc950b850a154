// Package emulated replaces rented machines in experiments without needing privileges. One process is one physical machine: a network
// card with a bandwidth of its own; behind it an instance of a service, which answers with a file, with chunks of a video or with a
// requested number of bytes; a probe server; and neighbours whose flows use part of the card. The instance cannot see how much the
// neighbours use; only probes can detect it.
//
// Only the machine's outgoing link is emulated. Open responses share it equally. Incoming requests, the processor, disks and memory are
// those of the real machine.
package emulated
