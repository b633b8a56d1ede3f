package exchange

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"tuskpoint.dev/go/tuskpoint/internal/retry"
	"tuskpoint.dev/go/tuskpoint/internal/wire"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

const (
	// maxUnanswered is how many messages with changes may be under way, none of whose changes has an
	// answer yet. The server commits a message at once, so this fills the time of one commit with the
	// collecting of the next. Loads do not count: one that reads the blob store delays no save.
	maxUnanswered = 2

	maxBatchBytes = 4 << 20
	sessionBytes  = 16
)

// pending is a call that waits for its answer. Its lane's mutex guards what may change.
type pending struct {
	call     *Call
	giveUp   time.Time
	deadline time.Time // zero: none
	done     chan outcome

	id       uint64 // number on the stream that it was sent on
	sent     *batch // the message that it was sent with; nil as long as it was not
	answered bool   // it has an answer on that stream, if not its last
	left     bool   // nobody waits for it any more
}

type outcome struct {
	answer *tuskpointv1.Answer
	err    error
}

// batch is one message that was sent.
type batch struct {
	calls    []*pending
	answered bool // it does not count as under way: a change of it has an answer, or it has none
}

// lane is the calls of one session, and the stream that carries them while there is one.
type lane struct {
	config  *Config
	ctx     context.Context // ends when the lane is closed
	running *sync.WaitGroup
	session []byte
	wake    chan struct{} // something has changed for the goroutine that writes

	mutex      sync.Mutex
	begun      bool // there is a goroutine that writes
	closed     bool
	waiting    []*pending // not sent on the present stream, in order
	attempt    uint64     // streams opened so far
	failures   int        // streams that broke since the last answer
	sent       map[uint64]*pending
	lastID     uint64
	unanswered int
	draining   bool // nothing more is sent on the present stream
}

func newLane(ctx context.Context, config *Config, running *sync.WaitGroup) *lane {
	session := make([]byte, sessionBytes)
	rand.Read(session) // never fails
	return &lane{
		config: config, ctx: ctx, running: running, session: session,
		wake: make(chan struct{}, 1), sent: map[uint64]*pending{},
	}
}

// add puts a call at the end of those that wait.
func (l *lane) add(call *pending) error {
	if err := call.call.checkSize(l.config.MaxMessageBytes); err != nil {
		return err
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.closed {
		return l.config.Closed
	}
	if !l.begun {
		l.begun = true
		l.running.Add(1)
		go l.run()
	}
	l.waiting = append(l.waiting, call)
	l.changed()
	return nil
}

// leave takes a call back that nobody waits for. If it was sent, its answer is dropped.
func (l *lane) leave(call *pending) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	call.left = true
	if place := slices.Index(l.waiting, call); place >= 0 {
		l.waiting = slices.Delete(l.waiting, place, place+1)
	}
}

// close lets no further call in.
func (l *lane) close() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.closed = true
}

// changed wakes the goroutine that writes.
func (l *lane) changed() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// next returns the calls of the next message, marked as sent; nil if none may be sent now.
func (l *lane) next() *batch {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.draining || l.unanswered >= maxUnanswered || len(l.waiting) == 0 {
		return nil
	}
	limit := min(maxBatchBytes, l.config.MaxMessageBytes)
	made := &batch{answered: true}
	size, count := 0, 0
	for _, call := range l.waiting {
		size += len(call.call.body) + overhead
		if count > 0 && size > limit {
			break
		}
		count++
		l.lastID++
		call.id, call.sent, call.answered = l.lastID, made, false
		l.sent[call.id] = call
		if call.call.change {
			made.answered = false
		}
		if len(call.call.large) > 0 {
			break // its chunks follow
		}
	}
	made.calls = slices.Clone(l.waiting[:count])
	l.waiting = slices.Delete(l.waiting, 0, count)
	if !made.answered {
		l.unanswered++
	}
	return made
}

// take takes a message of the server.
func (l *lane) take(response *tuskpointv1.ExchangeResponse) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, answer := range response.GetAnswers() {
		call := l.sent[answer.GetId()]
		if call == nil {
			return wire.Breach("an answer to an unknown frame")
		}
		l.failures, call.answered = 0, true
		if call.call.change && !call.sent.answered {
			call.sent.answered = true
			l.unanswered--
		}
		if answer.GetLast() {
			delete(l.sent, answer.GetId())
			call.done <- outcome{answer: answer}
		}
	}
	l.draining = l.draining || response.GetDraining()
	l.changed()
	return nil
}

// outdated reports whether the waiting calls need another stream, because this one was opened with a
// credential that was replaced. That is so once every change that was sent has an answer: waits for
// certification and loads begin again.
func (l *lane) outdated(shown string) bool {
	if l.idle() || l.config.Credential() == shown {
		return false
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.draining = true
	for _, call := range l.sent {
		if call.call.change && !call.answered {
			return false
		}
	}
	return true
}

// opening begins the next stream; it returns the head of its first message.
func (l *lane) opening() *tuskpointv1.Hello {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.attempt++
	l.lastID, l.unanswered, l.draining = 0, 0, false
	return &tuskpointv1.Hello{Session: l.session, Attempt: l.attempt}
}

// broken decides about the calls without an answer once their stream has ended. Those that are sent
// again come before all others, in their order. It returns the pause before the next stream.
func (l *lane) broken(err error, opened, replaced bool) time.Duration {
	failure := l.config.Failure(err)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.failures++
	pause := failure.Pause(l.failures, mathrand.Float64())
	if replaced && failure.Status == codes.Unauthenticated {
		pause = 0
	} else {
		replaced = false
	}
	next := time.Now().Add(pause)
	var staying []*pending
	judge := func(call *pending, repeatable bool) {
		again := failure.Worth(repeatable) || (replaced && repeatable)
		switch {
		case call.left:
		case again && retry.Before(next, call.giveUp, call.deadline):
			call.sent = nil
			staying = append(staying, call)
		default:
			call.done <- outcome{err: err}
		}
	}
	byID := func(a, b *pending) int { return cmp.Compare(a.id, b.id) }
	for _, call := range slices.SortedFunc(maps.Values(l.sent), byID) {
		judge(call, call.call.repeatable)
	}
	clear(l.sent)
	waiting := l.waiting
	for _, call := range waiting {
		if !opened || failure.Worth(true) {
			judge(call, true)
		} else {
			staying = append(staying, call) // the error was about others
		}
	}
	l.waiting = staying
	return pause
}

// idle reports whether no call waits.
func (l *lane) idle() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return len(l.waiting) == 0
}

// fail ends all calls with an error.
func (l *lane) fail(err error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.closed = true
	for _, call := range slices.Concat(slices.Collect(maps.Values(l.sent)), l.waiting) {
		call.done <- outcome{err: err}
	}
	clear(l.sent)
	l.waiting = nil
}
