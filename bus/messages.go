package bus

import (
	"crypto/rand"

	"github.com/nats-io/nats.go"

	"github.com/quellhq/quell/bus/pack"
)

// messages packs a value into as many messages as it needs.
func (c *Conn) messages(subject string, value []byte) ([]*nats.Msg, error) {
	packed, err := c.packer.Pack(value)
	if err != nil {
		return nil, err
	}
	chunks := pack.Split(packed, c.chunkSize())
	msgs, id := make([]*nats.Msg, len(chunks)), rand.Text()
	for i, chunk := range chunks {
		header := nats.Header{pack.Header: {pack.Part{ID: id, Index: i, Count: len(chunks)}.String()}}
		msgs[i] = &nats.Msg{Subject: subject, Data: chunk, Header: header}
	}
	return msgs, nil
}

// chunkSize returns the size of chunks. It is smaller than pack.ChunkBytes if an external server accepts only small messages.
func (c *Conn) chunkSize() int {
	if most := int(c.nc.MaxPayload()) - pack.HeaderBytes; most > 0 && most < pack.ChunkBytes {
		return most
	}
	return pack.ChunkBytes
}
