package bus

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
)

const (
	// chunkBytes is the limit of a chunk of a packed value; a message also holds headers.
	chunkBytes = 512 << 10
	// maxValue is the limit of a value before packing, in bytes: several times what a service of 10,000 instances needs.
	maxValue = 64 << 20
	// partHeader marks a chunk as <value>/<index>/<count>.
	partHeader = "Quell-Part"
	// headerBytes is the space for a message's headers in addition to the chunk.
	headerBytes = 4 << 10
	window      = 1 << 20
)

// packer compresses values. Several goroutines may use it. It starts no goroutines, so it need not be closed.
type packer struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newPacker() (*packer, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("prepare compression: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxValue), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("prepare decompression: %w", err)
	}
	return &packer{enc, dec}, nil
}

func (p *packer) pack(value []byte) ([]byte, error) {
	if len(value) > maxValue {
		return nil, fmt.Errorf("%d bytes; at most %d can be kept", len(value), maxValue)
	}
	return p.enc.EncodeAll(value, nil), nil
}

func (p *packer) unpack(packed []byte) ([]byte, error) {
	value, err := p.dec.DecodeAll(packed, []byte{})
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return value, nil
}

// split cuts packed data into chunks of at most size bytes. There is always at least one.
func split(packed []byte, size int) [][]byte {
	var chunks [][]byte
	for len(packed) > size {
		chunks = append(chunks, packed[:size:size])
		packed = packed[size:]
	}
	return append(chunks, packed)
}

// messages packs a value into as many messages as it needs.
func (c *Conn) messages(subject string, value []byte) ([]*nats.Msg, error) {
	packed, err := c.packer.pack(value)
	if err != nil {
		return nil, err
	}
	chunks := split(packed, c.chunkSize())
	msgs, id := make([]*nats.Msg, len(chunks)), rand.Text()
	for i, chunk := range chunks {
		header := nats.Header{partHeader: {part{id, i, len(chunks)}.String()}}
		msgs[i] = &nats.Msg{Subject: subject, Data: chunk, Header: header}
	}
	return msgs, nil
}

// chunkSize returns the size of chunks. It is smaller than chunkBytes if an external server accepts only small messages.
func (c *Conn) chunkSize() int {
	if most := int(c.nc.MaxPayload()) - headerBytes; most > 0 && most < chunkBytes {
		return most
	}
	return chunkBytes
}

// part says which chunk of which value a message carries.
type part struct {
	id           string
	index, count int
}

func (p part) String() string { return fmt.Sprintf("%s/%d/%d", p.id, p.index, p.count) }

func parsePart(text string) (part, error) {
	fields := strings.Split(text, "/")
	if len(fields) != 3 || fields[0] == "" {
		return part{}, fmt.Errorf("header %s %q: want id/index/count", partHeader, text)
	}
	index, err1 := strconv.Atoi(fields[1])
	count, err2 := strconv.Atoi(fields[2])
	if err1 != nil || err2 != nil || index < 0 || index >= count {
		return part{}, fmt.Errorf("header %s %q: want id/index/count", partHeader, text)
	}
	return part{fields[0], index, count}, nil
}

// assembler joins chunks to values. It leaves out incomplete values, whose writer was killed or whose beginning was
// removed for space. It counts a value once if it was stored twice because the writer got no answer.
type assembler struct {
	last  part
	data  []byte
	whole string // id of the value that was completed last
}

// add takes the next chunk and returns the packed value if this chunk completes it.
func (a *assembler) add(p part, chunk []byte) (packed []byte, complete bool) {
	if p == a.last || p.id == a.whole {
		return nil, false
	}
	next := p.id == a.last.id && p.count == a.last.count && p.index == a.last.index+1
	if p.index > 0 && (!next || len(a.data)+len(chunk) > maxValue) {
		*a = assembler{whole: a.whole}
		return nil, false
	}
	if p.index == 0 {
		a.data = nil
	}
	a.last, a.data = p, append(a.data, chunk...)
	if p.index < p.count-1 {
		return nil, false
	}
	packed = a.data
	*a = assembler{whole: p.id}
	return packed, true
}
