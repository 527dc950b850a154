package need

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// DNS returns the address of a DNS server, and a function that starts it with other records, as in the configuration of dnsmasq. The
// domain is test. Nothing answers until the first call, and for a moment after each call.
func DNS(t testing.TB) (address string, change func(records string)) {
	t.Helper()
	path := Program(t, "dnsmasq")
	address = FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	config := filepath.Join(t.TempDir(), "dnsmasq.conf")
	var running *exec.Cmd
	end := func() {
		if running != nil {
			_ = running.Process.Kill()
			_ = running.Wait()
		}
	}
	t.Cleanup(end)
	return address, func(records string) {
		t.Helper()
		end()
		text := fmt.Sprintf("port=%s\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\nuser=root\nlocal=/test/\n%s", port, records)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		running = exec.Command(path, "--keep-in-foreground", "--conf-file="+config, "--pid-file")
		if err := running.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

// Types of records, and codes of answers.
const (
	RecordA, RecordAAAA  = 1, 28
	NameKnown, NameFails = 0, 2
)

// Names returns the address of a DNS server that this process is, for answers that no sound server gives: whatever the name, a question
// for records of one type is answered with the code and the addresses that the function returns.
func Names(t testing.TB, answer func(record uint16) (code byte, addresses []netip.Addr)) (address string) {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		question := make([]byte, 512)
		for {
			n, from, err := socket.ReadFrom(question)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(answered(question[:n], answer), from)
		}
	}()
	return socket.LocalAddr().String()
}

// answered returns the answer to a question, as RFC 1035 has it: a header, the question once more, and the records.
func answered(question []byte, answer func(uint16) (byte, []netip.Addr)) []byte {
	const header = 12
	end := header
	for question[end] != 0 { // the parts of the name
		end += 1 + int(question[end])
	}
	end += 5 // the name's end, the type and the class
	record := binary.BigEndian.Uint16(question[end-4:])
	code, addresses := answer(record)
	reply := slices.Clone(question[:end])
	reply[2], reply[3] = 0x81, 0x80|code // this is an answer, of a server that asks others
	binary.BigEndian.PutUint16(reply[6:], uint16(len(addresses)))
	binary.BigEndian.PutUint32(reply[8:], 0) // no records of other sections
	for _, a := range addresses {
		reply = append(reply, 0xc0, header) // the name is the question's
		reply = binary.BigEndian.AppendUint16(reply, record)
		reply = append(reply, 0, 1, 0, 0, 0, 1) // of the internet, and true for a second
		data := a.AsSlice()
		reply = binary.BigEndian.AppendUint16(reply, uint16(len(data)))
		reply = append(reply, data...)
	}
	return reply
}
