package tuskpoint

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// saved puts a checkpoint with values of these sizes into a cache, one channel for each.
func saved(cache *valueCache, thread string, sizes ...int) {
	request := &tuskpointv1.SaveCheckpointRequest{Checkpoint: &tuskpointv1.Checkpoint{
		Ref: &tuskpointv1.CheckpointRef{ThreadId: thread}, State: &tuskpointv1.CheckpointState{},
	}}
	state := request.Checkpoint.State
	for number, size := range sizes {
		text := strings.Repeat(fmt.Sprint(number%10), size)
		value := &tuskpointv1.Value{Type: "json", Data: []byte(text)}
		state.Channels = append(state.Channels, &tuskpointv1.Channel{
			Name: fmt.Sprint(number), Content: &tuskpointv1.Channel_Value{Value: value},
		})
	}
	cache.apply(cache.changeOfSave(request), "1")
}

// sizesOf returns the sizes of the values that a load of a thread names, in order.
func sizesOf(cache *valueCache, thread string) []int {
	var sizes []int
	for digest, value := range cache.heldFor(place{thread, ""}) {
		if digest != valueDigest(value.kind, value.data) {
			panic("a value has another digest")
		}
		sizes = append(sizes, len(value.data))
	}
	slices.Sort(sizes)
	return sizes
}

func TestKeptValuesAreBounded(t *testing.T) {
	cache := &valueCache{maxBytes: 64 << 10}
	saved(cache, "t", 1023, 1024, 16<<10, 16<<10+1)
	if sizes := sizesOf(cache, "t"); !slices.Equal(sizes, []int{1024, 16 << 10}) {
		t.Errorf("values of %v bytes are kept", sizes)
	}
	for number := range 10 {
		saved(cache, fmt.Sprint(number), 15<<10, 14<<10)
		saved(cache, "used", 10<<10)
		if cache.size > cache.maxBytes {
			t.Fatalf("%d bytes are kept", cache.size)
		}
	}
	if sizesOf(cache, "used") == nil || sizesOf(cache, "9") == nil || sizesOf(cache, "0") != nil {
		t.Error("another thread than the one that was used longest ago was dropped")
	}
	off := &valueCache{}
	saved(off, "t", 2000)
	if sizesOf(off, "t") != nil {
		t.Error("a value is kept in no bytes")
	}
}

func TestALoadNamesTheLargestValuesIfThereAreTooMany(t *testing.T) {
	cache := &valueCache{maxBytes: DefaultValueCacheBytes}
	var sizes []int
	for number := range maxHeldDigests + 10 {
		sizes = append(sizes, minCachedBytes+number)
	}
	saved(cache, "t", sizes...)
	if named := sizesOf(cache, "t"); !slices.Equal(named, sizes[10:]) {
		t.Errorf("values of %v bytes are named", named)
	}
}

func TestWritesAreKeptUntilAnotherCheckpointIsSaved(t *testing.T) {
	cache := &valueCache{maxBytes: 64 << 10}
	ref := &tuskpointv1.CheckpointRef{ThreadId: "t", CheckpointId: "1"}
	write := &tuskpointv1.PendingWrite{TaskId: "n", Channel: "x", Content: &tuskpointv1.PendingWrite_Value{
		Value: &tuskpointv1.Value{Type: "json", Data: make([]byte, 3000)},
	}}
	cache.apply(cache.changeOfWrites(ref, []*tuskpointv1.PendingWrite{write}), "1")
	saved(cache, "t", 2000)
	if sizes := sizesOf(cache, "t"); !slices.Equal(sizes, []int{2000, 3000}) {
		t.Errorf("values of %v bytes are kept", sizes)
	}
	next := &tuskpointv1.SaveCheckpointRequest{Checkpoint: &tuskpointv1.Checkpoint{
		Ref: ref, State: &tuskpointv1.CheckpointState{Channels: []*tuskpointv1.Channel{{Name: "0"}}},
	}}
	cache.apply(cache.changeOfSave(next), "2")
	if sizes := sizesOf(cache, "t"); !slices.Equal(sizes, []int{2000}) {
		t.Errorf("values of %v bytes are kept", sizes)
	}
}

func TestAValueThatWasLeftOutAndNotNamedIsRefused(t *testing.T) {
	channel := &tuskpointv1.Channel{Name: "x", Digest: make([]byte, 32), SizeBytes: 2000}
	state := &tuskpointv1.CheckpointState{Channels: []*tuskpointv1.Channel{channel}}
	if err := (heldValues{}).fill(&tuskpointv1.Checkpoint{State: state}); err == nil {
		t.Error("it is taken")
	}
}
