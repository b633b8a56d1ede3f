package tuskpoint

import (
	"container/list"
	"sync"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// rememberedThreads is the number of checkpoints that a client remembers, one for each thread and
// namespace.
const rememberedThreads = 1024

// known is a client's memory of a checkpoint that the next checkpoint may follow. The zero value is
// no checkpoint. The value is never changed.
type known struct {
	id       string
	parentID string
	channels map[string]held
	// guessed: the service stored other versions, because it chose another parent.
	guessed bool
}

// held is the version and the digest of a channel's content.
type held struct {
	version *tuskpointv1.Version
	digest  string
}

// place is a namespace of a thread.
type place struct{ threadID, namespace string }

// memory has the last checkpoints that a client saved. The least recently used checkpoint is
// dropped first.
type memory struct {
	mutex   sync.Mutex
	newest  list.List // of remembered, the most recently used in front
	entries map[place]*list.Element
}

type remembered struct {
	place place
	known known
}

// get returns the last checkpoint of a namespace, if it is still remembered.
func (m *memory) get(where place) (known, bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	entry := m.entries[where]
	if entry == nil {
		return known{}, false
	}
	m.newest.MoveToFront(entry)
	return entry.Value.(remembered).known, true
}

// put remembers the last checkpoint of a namespace.
func (m *memory) put(where place, what known) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if entry := m.entries[where]; entry != nil {
		m.newest.Remove(entry)
	}
	if m.entries == nil {
		m.entries = make(map[place]*list.Element)
	}
	m.entries[where] = m.newest.PushFront(remembered{where, what})
	if m.newest.Len() > rememberedThreads {
		oldest := m.newest.Remove(m.newest.Back()).(remembered)
		delete(m.entries, oldest.place)
	}
}

// forget forgets all namespaces of a thread.
func (m *memory) forget(threadID string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for where, entry := range m.entries {
		if where.threadID == threadID {
			m.newest.Remove(entry)
			delete(m.entries, where)
		}
	}
}
