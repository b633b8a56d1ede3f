// Package wire puts values of any size into the messages of the contract and takes them out again:
// it cuts values that do not fit a message into chunks, and assembles received chunks. It makes no
// calls.
package wire

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

const (
	chunkBytes          = 1 << 20
	maxInlineValueBytes = 1 << 20
	maxInlineBytes      = 2 << 20
	maxReservedBytes    = 16 << 20 // of an announced value; more is reserved as chunks arrive
)

// Breach is the error for an answer that breaks the contract; the text describes the breach.
type Breach string

// Error returns the text.
func (b Breach) Error() string { return string(b) }

// Holder is a part of a message that can contain a value: a channel or a pending write.
type Holder struct {
	value *tuskpointv1.Value      // the inline content, if any
	large *tuskpointv1.LargeValue // the announcement, if the content comes in chunks

	fill     func(*tuskpointv1.Value)      // sets the inline content
	announce func(*tuskpointv1.LargeValue) // sets the announcement
}

func channelHolder(channel *tuskpointv1.Channel) Holder {
	return Holder{
		value: channel.GetValue(),
		large: channel.GetLarge(),
		fill: func(value *tuskpointv1.Value) {
			channel.Content = &tuskpointv1.Channel_Value{Value: value}
		},
		announce: func(large *tuskpointv1.LargeValue) {
			channel.Content = &tuskpointv1.Channel_Large{Large: large}
		},
	}
}

func writeHolder(write *tuskpointv1.PendingWrite) Holder {
	return Holder{
		value: write.GetValue(),
		large: write.GetLarge(),
		fill: func(value *tuskpointv1.Value) {
			write.Content = &tuskpointv1.PendingWrite_Value{Value: value}
		},
		announce: func(large *tuskpointv1.LargeValue) {
			write.Content = &tuskpointv1.PendingWrite_Large{Large: large}
		},
	}
}

// Holders returns the parts that can contain values, in the order that numbers large values.
func Holders(channels []*tuskpointv1.Channel, writes []*tuskpointv1.PendingWrite) []Holder {
	all := make([]Holder, 0, len(channels)+len(writes))
	for _, channel := range channels {
		all = append(all, channelHolder(channel))
	}
	for _, write := range writes {
		all = append(all, writeHolder(write))
	}
	return all
}

// DetachLarge announces the values that do not fit a message and returns them in order; nil if
// all fit.
func DetachLarge(all []Holder) []*tuskpointv1.Value {
	type inline struct{ size, place int }
	left := 0
	var candidates []inline
	for place, holder := range all {
		if holder.value != nil {
			size := proto.Size(holder.value)
			left += size
			candidates = append(candidates, inline{size, place})
		}
	}
	slices.SortFunc(candidates, func(a, b inline) int { return cmp.Compare(b.size, a.size) })
	var places []int
	for _, candidate := range candidates {
		if candidate.size <= maxInlineValueBytes && left <= maxInlineBytes {
			break
		}
		left -= candidate.size
		places = append(places, candidate.place)
	}
	slices.Sort(places)
	var large []*tuskpointv1.Value
	for _, place := range places {
		value := all[place].value
		all[place].announce(&tuskpointv1.LargeValue{
			Type: value.GetType(), SizeBytes: uint64(len(value.GetData())),
		})
		large = append(large, value)
	}
	return large
}

// Chunks calls send with each piece of large values, until send returns an error.
func Chunks(large []*tuskpointv1.Value, send func(*tuskpointv1.ValueChunk) error) error {
	for index, value := range large {
		offset := uint64(0)
		for piece := range slices.Chunk(value.GetData(), chunkBytes) {
			err := send(&tuskpointv1.ValueChunk{ValueIndex: uint32(index), Offset: offset, Data: piece})
			if err != nil {
				return err
			}
			offset += uint64(len(piece))
		}
	}
	return nil
}

// filling has the large values of one message, which are filled in the order of their chunks.
type filling struct {
	open  []Holder
	index int
	data  []byte
}

func newFilling(all []Holder) filling {
	f := filling{open: slices.DeleteFunc(all, func(one Holder) bool { return one.large == nil })}
	f.closeFull()
	return f
}

func (f *filling) full() bool { return f.index == len(f.open) }

func (f *filling) add(chunk *tuskpointv1.ValueChunk) error {
	if f.full() {
		return Breach("a chunk that was not announced")
	}
	if int(chunk.GetValueIndex()) != f.index || chunk.GetOffset() != uint64(len(f.data)) {
		return Breach(fmt.Sprintf("a chunk of value %d at %d where value %d at %d was due",
			chunk.GetValueIndex(), chunk.GetOffset(), f.index, len(f.data)))
	}
	if len(chunk.GetData()) == 0 {
		return Breach("an empty chunk")
	}
	announced := f.open[f.index].large.GetSizeBytes()
	if f.data == nil {
		f.data = make([]byte, 0, min(announced, maxReservedBytes))
	}
	f.data = append(f.data, chunk.GetData()...)
	if uint64(len(f.data)) > announced {
		return Breach(fmt.Sprintf("more than the %d bytes of value %d", announced, f.index))
	}
	f.closeFull()
	return nil
}

func (f *filling) closeFull() {
	for !f.full() {
		holder := f.open[f.index]
		if uint64(len(f.data)) < holder.large.GetSizeBytes() {
			return
		}
		holder.fill(&tuskpointv1.Value{Type: holder.large.GetType(), Data: f.data})
		f.data = nil
		f.index++
	}
}

// Assembler turns frames into complete messages, with every value inline.
type Assembler[M any] struct {
	current    *M
	filling    filling
	checkpoint func(*M) *tuskpointv1.Checkpoint // the checkpoint whose values may come in chunks
}

// AssembleCheckpoints returns an assembler for a sequence of checkpoints.
func AssembleCheckpoints() Assembler[tuskpointv1.Checkpoint] {
	return Assembler[tuskpointv1.Checkpoint]{
		checkpoint: func(one *tuskpointv1.Checkpoint) *tuskpointv1.Checkpoint { return one },
	}
}

// AssembleEvents returns an assembler for the events of a watch.
func AssembleEvents() Assembler[tuskpointv1.ThreadEvent] {
	return Assembler[tuskpointv1.ThreadEvent]{checkpoint: (*tuskpointv1.ThreadEvent).GetCheckpoint}
}

// Add processes the next frame, which starts a message or is a chunk of the current message. It
// returns the message that the frame completes; nil if it completes none.
func (a *Assembler[M]) Add(message *M, chunk *tuskpointv1.ValueChunk) (*M, error) {
	switch {
	case message != nil && a.current != nil:
		return nil, Breach("a message in the middle of another's values")
	case message != nil:
		a.current = message
		checkpoint := a.checkpoint(message)
		a.filling = newFilling(Holders(checkpoint.GetState().GetChannels(), checkpoint.GetWrites()))
	case chunk == nil:
		return nil, Breach("an empty frame")
	default:
		if failure := a.filling.add(chunk); failure != nil {
			return nil, failure
		}
	}
	if !a.filling.full() {
		return nil, nil
	}
	complete := a.current
	a.current = nil
	return complete, nil
}

// End checks the end of the stream.
func (a *Assembler[M]) End() error {
	if a.current != nil {
		return Breach("the end in the middle of a message's values")
	}
	return nil
}
