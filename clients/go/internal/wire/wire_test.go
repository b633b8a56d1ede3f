package wire

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

func channelOf(name string, size int) *tuskpointv1.Channel {
	data := bytes.Repeat([]byte(name), size)
	return &tuskpointv1.Channel{Name: name, Content: &tuskpointv1.Channel_Value{
		Value: &tuskpointv1.Value{Type: "bytes", Data: data},
	}}
}

func TestLargeValuesAreCutAndPutTogether(t *testing.T) {
	checkpoint := &tuskpointv1.Checkpoint{
		State: &tuskpointv1.CheckpointState{Channels: []*tuskpointv1.Channel{
			channelOf("a", 10), channelOf("b", 3<<20), channelOf("c", 0), channelOf("d", 1<<20+1),
		}},
		Writes: []*tuskpointv1.PendingWrite{{
			TaskId: "t", Channel: "e", Content: &tuskpointv1.PendingWrite_Value{
				Value: &tuskpointv1.Value{Type: "bytes", Data: bytes.Repeat([]byte("e"), 2<<20)},
			},
		}},
	}
	whole := proto.CloneOf(checkpoint)
	large := DetachLarge(Holders(checkpoint.GetState().GetChannels(), checkpoint.GetWrites()))
	if len(large) != 3 {
		t.Fatalf("%d values are large", len(large))
	}
	assembler := AssembleCheckpoints()
	complete, failure := assembler.Add(checkpoint, nil)
	err := Chunks(large, func(chunk *tuskpointv1.ValueChunk) error {
		if complete != nil || failure != nil {
			t.Fatalf("before all chunks: %v, %v", complete, failure)
		}
		complete, failure = assembler.Add(nil, chunk)
		return nil
	})
	if err != nil || failure != nil || assembler.End() != nil {
		t.Fatal(err, failure)
	}
	if !proto.Equal(complete, whole) {
		t.Error("what was put together is not what was cut")
	}
}

func TestManySmallValuesFitAMessage(t *testing.T) {
	channels := []*tuskpointv1.Channel{}
	for range 5 {
		channels = append(channels, channelOf("a", 600<<10))
	}
	large := DetachLarge(Holders(channels, nil))
	if len(large) != 2 {
		t.Errorf("%d values of 5 were taken out to leave 2 MiB", len(large))
	}
	if DetachLarge(Holders(channels[:0], nil)) != nil {
		t.Error("nothing was taken out of nothing")
	}
}

func TestChunksOutOfOrderAreRefused(t *testing.T) {
	announced := func() *tuskpointv1.Checkpoint {
		return &tuskpointv1.Checkpoint{State: &tuskpointv1.CheckpointState{
			Channels: []*tuskpointv1.Channel{{Name: "a", Content: &tuskpointv1.Channel_Large{
				Large: &tuskpointv1.LargeValue{Type: "bytes", SizeBytes: 4},
			}}},
		}}
	}
	for name, chunk := range map[string]*tuskpointv1.ValueChunk{
		"another value":  {ValueIndex: 1, Data: []byte("ab")},
		"another offset": {Offset: 2, Data: []byte("ab")},
		"empty":          {},
		"too much":       {Data: []byte("abcde")},
	} {
		assembler := AssembleCheckpoints()
		if _, failure := assembler.Add(announced(), nil); failure != nil {
			t.Fatal(failure)
		}
		if _, failure := assembler.Add(nil, chunk); failure == nil {
			t.Errorf("%s: %v", name, failure)
		}
	}
	assembler := AssembleCheckpoints()
	if _, failure := assembler.Add(announced(), nil); failure != nil {
		t.Fatal(failure)
	}
	if _, failure := assembler.Add(announced(), nil); failure == nil {
		t.Error("a message in the middle of another was taken")
	}
	if assembler.End() == nil {
		t.Error("an end in the middle of a message was taken")
	}
}
