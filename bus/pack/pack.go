// Package pack compresses values and cuts them into parts that fit into messages. Pure.
package pack

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	// ChunkBytes is the limit of a chunk of a packed value; a message also holds headers.
	ChunkBytes = 512 << 10
	// MaxValue is the limit of a value before packing, in bytes: several times what a service of 10,000 instances needs.
	MaxValue = 64 << 20
	// Header marks a chunk as <value>/<index>/<count>.
	Header = "Quell-Part"
	// HeaderBytes is the space for a message's headers in addition to the chunk.
	HeaderBytes = 4 << 10
	window      = 1 << 20
)

// Packer compresses values. Several goroutines may use it. It starts no goroutines, so it need not be closed.
type Packer struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

// New returns a packer.
func New() (*Packer, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("prepare compression: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxValue), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("prepare decompression: %w", err)
	}
	return &Packer{enc, dec}, nil
}

// Pack compresses a value of at most MaxValue bytes.
func (p *Packer) Pack(value []byte) ([]byte, error) {
	if len(value) > MaxValue {
		return nil, fmt.Errorf("%d bytes; at most %d can be kept", len(value), MaxValue)
	}
	return p.enc.EncodeAll(value, nil), nil
}

// Unpack returns what was packed. It refuses what would be larger than MaxValue.
func (p *Packer) Unpack(packed []byte) ([]byte, error) {
	value, err := p.dec.DecodeAll(packed, []byte{})
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return value, nil
}

// Split cuts packed data into chunks of at most size bytes. There is always at least one.
func Split(packed []byte, size int) [][]byte {
	var chunks [][]byte
	for len(packed) > size {
		chunks = append(chunks, packed[:size:size])
		packed = packed[size:]
	}
	return append(chunks, packed)
}

// Part says which chunk of which value a message carries.
type Part struct {
	ID           string
	Index, Count int
}

// String is the header of the chunk.
func (p Part) String() string { return fmt.Sprintf("%s/%d/%d", p.ID, p.Index, p.Count) }

// ParsePart reads the header of a chunk.
func ParsePart(text string) (Part, error) {
	fields := strings.Split(text, "/")
	if len(fields) != 3 || fields[0] == "" {
		return Part{}, fmt.Errorf("header %s %q: want id/index/count", Header, text)
	}
	index, err1 := strconv.Atoi(fields[1])
	count, err2 := strconv.Atoi(fields[2])
	if err1 != nil || err2 != nil || index < 0 || index >= count {
		return Part{}, fmt.Errorf("header %s %q: want id/index/count", Header, text)
	}
	return Part{fields[0], index, count}, nil
}

// Assembler joins chunks to values. It leaves out incomplete values, whose writer was killed or whose beginning was
// removed for space. It counts a value once if it was stored twice because the writer got no answer.
type Assembler struct {
	last  Part
	data  []byte
	whole string // id of the value that was completed last
}

// Add takes the next chunk and returns the packed value if this chunk completes it.
func (a *Assembler) Add(p Part, chunk []byte) (packed []byte, complete bool) {
	if p == a.last || p.ID == a.whole {
		return nil, false
	}
	next := p.ID == a.last.ID && p.Count == a.last.Count && p.Index == a.last.Index+1
	if p.Index > 0 && (!next || len(a.data)+len(chunk) > MaxValue) {
		*a = Assembler{whole: a.whole}
		return nil, false
	}
	if p.Index == 0 {
		a.data = nil
	}
	a.last, a.data = p, append(a.data, chunk...)
	if p.Index < p.Count-1 {
		return nil, false
	}
	packed = a.data
	*a = Assembler{whole: p.ID}
	return packed, true
}
