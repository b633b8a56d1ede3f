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
	// maxUnanswered is the largest number of messages with changes that have no answer at all. The
	// server commits a message at once, so the next message is collected during the commit of the
	// previous one. Loads do not count: a load that reads the blob store delays no save.
	maxUnanswered = 2

	maxBatchBytes = 4 << 20
	sessionBytes  = 16
)

// pending is a call that waits for its answer. The mutex of its lane guards the fields that may
// change.
type pending struct {
	call     *Call
	giveUp   time.Time
	deadline time.Time // zero: none
	done     chan outcome

	id       uint64 // number on the stream that carries the call
	sent     *batch // the message that carried the call; nil until it was sent
	answered bool   // the call has an answer on that stream, though not the last one
	left     bool   // the caller no longer waits for the answer
}

type outcome struct {
	answer *tuskpointv1.Answer
	err    error
}

// batch is one sent message.
type batch struct {
	calls    []*pending
	answered bool // no longer in progress: a change of it has an answer, or it has no change
}

// lane has the calls of one session, and the stream that carries them.
type lane struct {
	config  *Config
	ctx     context.Context // ends when the lane is closed
	running *sync.WaitGroup
	session []byte
	wake    chan struct{} // wakes the goroutine that writes

	mutex      sync.Mutex
	begun      bool // the goroutine that writes is running
	closed     bool
	waiting    []*pending // not sent on the current stream, in order
	attempt    uint64     // streams opened so far
	failures   int        // streams that broke since the last answer
	sent       map[uint64]*pending
	lastID     uint64
	unanswered int
	draining   bool // nothing more is sent on the current stream
}

func newLane(ctx context.Context, config *Config, running *sync.WaitGroup) *lane {
	session := make([]byte, sessionBytes)
	rand.Read(session) // never fails
	return &lane{
		config: config, ctx: ctx, running: running, session: session,
		wake: make(chan struct{}, 1), sent: map[uint64]*pending{},
	}
}

// add appends a call to the waiting calls.
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

// leave removes a call whose caller no longer waits. If the call was sent, its answer is dropped.
func (l *lane) leave(call *pending) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	call.left = true
	if place := slices.Index(l.waiting, call); place >= 0 {
		l.waiting = slices.Delete(l.waiting, place, place+1)
	}
}

// close refuses further calls.
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

// next returns the calls of the next message, marked as sent; nil if none may be sent at the
// moment.
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
			break // the chunks of the call follow
		}
	}
	made.calls = slices.Clone(l.waiting[:count])
	l.waiting = slices.Delete(l.waiting, 0, count)
	if !made.answered {
		l.unanswered++
	}
	return made
}

// take processes a message of the server.
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

// outdated reports whether the waiting calls need another stream, because the stream was opened
// with a credential that was replaced. The answer is true only after every sent change has an
// answer: waits for certification and loads restart.
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

// opening starts the next stream; it returns the head of the stream's first message.
func (l *lane) opening() *tuskpointv1.Hello {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.attempt++
	l.lastID, l.unanswered, l.draining = 0, 0, false
	return &tuskpointv1.Hello{Session: l.session, Attempt: l.attempt}
}

// broken decides about the unanswered calls after their stream has ended. Calls that are sent again
// come before all other calls, in order. It returns the pause before the next stream.
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
			staying = append(staying, call) // the error concerned other calls
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
