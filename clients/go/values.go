package tuskpoint

import (
	"cmp"
	"container/list"
	"slices"
	"strconv"
	"sync"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

const (
	// DefaultValueCacheBytes is the default size of a client's value cache; see
	// [WithValueCacheBytes].
	DefaultValueCacheBytes = 16 << 20

	minCachedBytes = 1024 // naming a digest costs 34 bytes in each load
	maxHeldDigests = 256  // of GetCheckpointRequest.held_digests
	cachedShare    = 4    // a value is kept only if its size is at most all bytes divided by this number
)

// slot is the position of a value: in a channel, or in a write after a checkpoint.
type slot struct{ checkpointID, taskID, index, channel string }

// cachedValue is a value in the cache. Its bytes are never changed, and no caller has them.
type cachedValue struct {
	kind   string
	data   []byte
	digest func() string // computed at its first use
}

func newCachedValue(value *tuskpointv1.Value) *cachedValue {
	kind, data := value.GetType(), slices.Clone(value.GetData())
	return &cachedValue{kind, data, sync.OnceValue(func() string { return valueDigest(kind, data) })}
}

// heldValues are cached values by their digests, as a load names them.
type heldValues map[string]*cachedValue

// digests returns the digests that a request names.
func (h heldValues) digests() [][]byte {
	digests := make([][]byte, 0, len(h))
	for digest := range h {
		digests = append(digests, []byte(digest))
	}
	return digests
}

// fill puts the values that the server left out into a checkpoint.
func (h heldValues) fill(checkpoint *tuskpointv1.Checkpoint) error {
	value := func(digest []byte, channel string) (*tuskpointv1.Value, error) {
		cached := h[string(digest)]
		if cached == nil {
			return nil, brokenContract("a load without a value of " + strconv.Quote(channel) +
				", which the client did not name")
		}
		return &tuskpointv1.Value{Type: cached.kind, Data: slices.Clone(cached.data)}, nil
	}
	for _, channel := range checkpoint.GetState().GetChannels() {
		if channel.GetContent() == nil && len(channel.GetDigest()) > 0 {
			content, err := value(channel.GetDigest(), channel.GetName())
			if err != nil {
				return err
			}
			channel.Content, channel.SizeBytes = &tuskpointv1.Channel_Value{Value: content}, 0
		}
	}
	for _, write := range checkpoint.GetWrites() {
		if write.GetContent() == nil && len(write.GetDigest()) > 0 {
			content, err := value(write.GetDigest(), write.GetChannel())
			if err != nil {
				return err
			}
			write.Content, write.SizeBytes = &tuskpointv1.PendingWrite_Value{Value: content}, 0
		}
	}
	return nil
}

// valueCache has the larger values of the checkpoint that each thread saved or loaded last, so that
// loads need not send them again. The values of the least recently used thread are dropped first.
type valueCache struct {
	maxBytes int

	mutex   sync.Mutex
	size    int
	newest  list.List // of cachedCheckpoint, the most recently used in front
	entries map[place]*list.Element
}

type cachedCheckpoint struct {
	place  place
	values map[slot]*cachedValue
	size   int
}

// heldFor returns the values that a load names: the largest values if there are too many.
func (c *valueCache) heldFor(where place) heldValues {
	values := c.get(where)
	if len(values) > maxHeldDigests {
		slices.SortFunc(values, func(a, b *cachedValue) int { return cmp.Compare(len(b.data), len(a.data)) })
		values = values[:maxHeldDigests]
	}
	held := make(heldValues, len(values))
	for _, value := range values {
		held[value.digest()] = value
	}
	return held
}

func (c *valueCache) get(where place) []*cachedValue {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	entry := c.entries[where]
	if entry == nil {
		return nil
	}
	c.newest.MoveToFront(entry)
	var values []*cachedValue
	for _, value := range entry.Value.(cachedCheckpoint).values {
		values = append(values, value)
	}
	return values
}

// change is the effect of a successful save on the values of a place.
type change struct {
	place     place
	values    map[slot]*cachedValue
	unchanged []slot // slots of the previous checkpoint
	isWhole   bool   // a checkpoint was saved, and not only writes
}

// changeOfSave returns the change of a checkpoint whose values are all inline.
func (c *valueCache) changeOfSave(request *tuskpointv1.SaveCheckpointRequest) *change {
	checkpoint := request.GetCheckpoint()
	made := c.changeOfWrites(checkpoint.GetRef(), request.GetWrites())
	made.isWhole = true
	for _, channel := range checkpoint.GetState().GetChannels() {
		where := slot{channel: channel.GetName()}
		if channel.GetValue() != nil {
			c.keep(made.values, where, channel.GetValue())
		} else if channel.GetEmpty() == nil {
			made.unchanged = append(made.unchanged, where)
		}
	}
	return made
}

// changeOfWrites returns the change of writes whose values are all inline.
func (c *valueCache) changeOfWrites(ref *tuskpointv1.CheckpointRef, writes []*tuskpointv1.PendingWrite) *change {
	made := &change{place: placeOf(ref), values: map[slot]*cachedValue{}}
	for position, write := range writes {
		c.keep(made.values, writtenAt(ref, position, write), write.GetValue())
	}
	return made
}

// apply applies the change of a successful save; the checkpoint has this ID.
func (c *valueCache) apply(made *change, checkpointID string) {
	if c.maxBytes == 0 {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	values := map[slot]*cachedValue{}
	if entry := c.entries[made.place]; entry != nil {
		before := entry.Value.(cachedCheckpoint).values
		for _, where := range made.unchanged {
			if value := before[where]; value != nil {
				values[where] = value
			}
		}
		for where, value := range before {
			// Writes may be saved before their checkpoint.
			if !made.isWhole || where.checkpointID == checkpointID {
				values[where] = value
			}
		}
	}
	for where, value := range made.values {
		if where.taskID != "" {
			where.checkpointID = checkpointID
		}
		values[where] = value
	}
	c.put(made.place, values)
}

// loaded adds the values of a checkpoint that was loaded whole.
func (c *valueCache) loaded(checkpoint *tuskpointv1.Checkpoint, held heldValues) {
	if c.maxBytes == 0 {
		return
	}
	ref, values := checkpoint.GetRef(), map[slot]*cachedValue{}
	add := func(where slot, digest []byte, value *tuskpointv1.Value) {
		if cached := held[string(digest)]; cached != nil {
			values[where] = cached
		} else {
			c.keep(values, where, value)
		}
	}
	for _, channel := range checkpoint.GetState().GetChannels() {
		add(slot{channel: channel.GetName()}, channel.GetDigest(), channel.GetValue())
	}
	for position, write := range checkpoint.GetWrites() {
		add(writtenAt(ref, position, write), write.GetDigest(), write.GetValue())
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.put(placeOf(ref), values)
}

// keep adds a value, if its size allows it.
func (c *valueCache) keep(values map[slot]*cachedValue, where slot, value *tuskpointv1.Value) {
	if size := len(value.GetData()); size >= minCachedBytes && size <= c.maxBytes/cachedShare {
		values[where] = newCachedValue(value)
	}
}

// put replaces the values of a place, and drops others to make room.
func (c *valueCache) put(where place, values map[slot]*cachedValue) {
	if entry := c.entries[where]; entry != nil {
		c.remove(entry)
	}
	made := cachedCheckpoint{place: where, values: map[slot]*cachedValue{}}
	for at, value := range values {
		if made.size+len(value.data) <= c.maxBytes {
			made.values[at] = value
			made.size += len(value.data)
		}
	}
	if len(made.values) == 0 {
		return
	}
	if c.entries == nil {
		c.entries = map[place]*list.Element{}
	}
	c.entries[where] = c.newest.PushFront(made)
	c.size += made.size
	for c.size > c.maxBytes {
		c.remove(c.newest.Back())
	}
}

func (c *valueCache) remove(entry *list.Element) {
	removed := c.newest.Remove(entry).(cachedCheckpoint)
	delete(c.entries, removed.place)
	c.size -= removed.size
}

func placeOf(ref *tuskpointv1.CheckpointRef) place {
	return place{ref.GetThreadId(), ref.GetCheckpointNs()}
}

// writtenAt returns the slot of a write; without an index of its own, its position counts.
func writtenAt(ref *tuskpointv1.CheckpointRef, position int, write *tuskpointv1.PendingWrite) slot {
	if write.Idx != nil {
		position = int(write.GetIdx())
	}
	return slot{ref.GetCheckpointId(), write.GetTaskId(), strconv.Itoa(position), write.GetChannel()}
}
