package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus/pack"
)

// untilHeader holds the newest time in a record, in nanoseconds since 1970, so that a reader can skip old records
// without decoding them.
const untilHeader = "Quell-Until"

// pullBytes is how much a reader requests at once.
const pullBytes = 4 << 20

// recordLog is a bounded sequence of records in one stream; when it is full the oldest are removed. Each record is
// compressed and split into as many messages as it needs.
type recordLog struct {
	conn     *Conn
	name     string
	subject  string
	maxBytes int64

	mu     sync.Mutex // keeps the messages of a record together
	upkeep upkeep
}

// contentOf returns how many bytes of messages a log may keep so that its files stay within the given size. The server writes files in
// blocks, whose size it derives from the limit. It deletes a block only when the block's last message is removed, and frees that space only
// after it has written new messages.
func contentOf(disk int64) int64 {
	const (
		smallBlock, largeBlock = 4 << 20, 8 << 20
		largeFrom              = 4 * largeBlock
	)
	slack := int64(pack.ChunkBytes + pack.HeaderBytes)
	if disk >= largeFrom {
		return disk - largeBlock - slack
	}
	return disk - smallBlock - slack
}

// append writes a record and returns when it is on disk. If it returns an error, the record may have been written nevertheless.
func (l *recordLog) append(ctx context.Context, record []byte, until time.Time) error {
	msgs, err := l.prepare(record, until)
	if err != nil {
		return err
	}
	return l.store(ctx, msgs)
}

// prepare splits a record into messages; until is the record's newest time. If messages are stored more than once, readers still
// see the record once.
func (l *recordLog) prepare(record []byte, until time.Time) ([]*nats.Msg, error) {
	msgs, err := l.conn.messages(l.subject, record)
	if err != nil {
		return nil, err
	}
	if need := space(msgs); need > l.maxBytes {
		return nil, userErrorf("it takes %d bytes and the journal keeps %d of its kind; raise bus.journal_bytes", need, l.maxBytes)
	}
	for _, m := range msgs {
		m.Header.Set(untilHeader, strconv.FormatInt(until.UnixNano(), 10))
		m.Header.Set(nats.MsgIdHdr, m.Header.Get(pack.Header)) // the server drops a message that it has stored in the last two minutes
	}
	return msgs, nil
}

// store returns when a record's messages are on disk. After an error it may be called again.
func (l *recordLog) store(ctx context.Context, msgs []*nats.Msg) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel, err := l.conn.request(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if err := l.open(ctx); err != nil {
		return err
	}
	return l.publish(ctx, msgs)
}

// space returns an upper limit of the space that messages take on disk.
func space(msgs []*nats.Msg) (bytes int64) {
	for _, m := range msgs {
		bytes += int64(len(m.Data)) + pack.HeaderBytes
	}
	return bytes
}

func (l *recordLog) open(ctx context.Context) error {
	if !l.upkeep.due(l.conn.opts.Now()) {
		return nil
	}
	return l.conn.replicate(ctx, &l.upkeep, func(ctx context.Context, replicas int) error {
		_, err := l.conn.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: l.name, Subjects: []string{l.subject}, Storage: jetstream.FileStorage, Replicas: replicas,
			Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, MaxBytes: l.maxBytes,
		})
		return err
	})
}

func (l *recordLog) publish(ctx context.Context, msgs []*nats.Msg) error {
	for _, m := range msgs {
		err := l.conn.insist(ctx, func(ctx context.Context) error {
			_, err := l.conn.js.PublishMsg(ctx, m)
			return err
		})
		if err != nil {
			l.upkeep = upkeep{}
			return err
		}
	}
	return nil
}

// read calls fn with the present records, oldest first. It skips records up to the one numbered after, and records whose newest time is
// before since. If records cannot be decompressed, it skips them and reports that at the end.
func (l *recordLog) read(ctx context.Context, since time.Time, after uint64, fn func(seq uint64, record []byte) error) error {
	messages, last, err := l.messages(ctx, after)
	if err != nil || messages == nil {
		return err
	}
	defer messages.Stop()
	var (
		whole   pack.Assembler
		damaged []error
		behind  bool // the server that reads lags behind the leader
	)
	for {
		m, seq, pending, err := next(ctx, messages, behind)
		if behind && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return errors.Join(append(damaged,
				errors.New("the newest records are missing: the server that was asked does not have them yet; ask again"))...)
		}
		if err != nil {
			return err
		}
		if packed, complete := l.take(&whole, m, since); complete {
			record, err := l.conn.packer.Unpack(packed)
			if err != nil {
				damaged = append(damaged, fmt.Errorf("record %d: %w", seq, err))
			} else if err := fn(seq, record); err != nil {
				return err
			}
		}
		behind = pending == 0
		if seq >= last || behind && l.conn.opts.Server != nil {
			return errors.Join(damaged...)
		}
	}
}

// messages opens the stream for reading up to its present end; nil if it is empty.
func (l *recordLog) messages(ctx context.Context, after uint64) (_ jetstream.MessagesContext, last uint64, err error) {
	ctx, cancel, err := l.conn.request(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer cancel()
	var stream jetstream.Stream
	err = l.conn.insist(ctx, func(ctx context.Context) (err error) {
		stream, err = l.conn.js.Stream(ctx, l.name)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, 0, quell.ErrNoData
	}
	if err != nil {
		return nil, 0, err
	}
	state := stream.CachedInfo().State
	if state.Msgs == 0 || state.LastSeq <= after {
		return nil, 0, nil
	}
	from := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	if after > 0 {
		from.DeliverPolicy, from.OptStartSeq = jetstream.DeliverByStartSequencePolicy, after+1
	}
	var consumer jetstream.Consumer
	err = l.conn.insist(ctx, func(ctx context.Context) (err error) {
		consumer, err = stream.OrderedConsumer(ctx, from)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxBytes(pullBytes))
	return messages, state.LastSeq, err
}

func next(ctx context.Context, messages jetstream.MessagesContext, behind bool) (m jetstream.Msg, seq, pending uint64, err error) {
	wait := requestTimeout
	if behind {
		wait = attempt
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if m, err = messages.Next(jetstream.NextContext(ctx)); err != nil {
		return nil, 0, 0, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return nil, 0, 0, err
	}
	return m, meta.Sequence.Stream, meta.NumPending, nil
}

// take passes a message to the pack.Assembler unless its record is too old. Messages that are not Quell's are skipped.
func (l *recordLog) take(whole *pack.Assembler, m jetstream.Msg, since time.Time) (packed []byte, complete bool) {
	until, err := strconv.ParseInt(m.Headers().Get(untilHeader), 10, 64)
	if err != nil {
		return nil, false
	}
	p, err := pack.ParsePart(m.Headers().Get(pack.Header))
	if err != nil || time.Unix(0, until).Before(since) {
		return nil, false
	}
	return whole.Add(p, m.Data())
}
