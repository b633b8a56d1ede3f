// Package retry decides whether a failed call is repeated, and after which pause. It makes no calls
// and does not depend on messages.
//
// This client repeats calls itself, because gRPC's service config knows neither reasons nor
// RetryInfo nor which calls may be sent twice, and ends after 5 attempts: too early to outlast the
// restart of a server.
package retry

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	maxAttempts  = 64
	initialDelay = 100 * time.Millisecond // upper bound of the first pause
	maxDelay     = 2 * time.Second        // the upper bound grows up to this
)

// nothingStored has the reasons that mean that the server stored nothing: even a call that must not
// be applied twice may be sent again.
var nothingStored = map[string]bool{
	"DRAINING": true, "JOURNAL_UNAVAILABLE": true, "BACKLOG_FULL": true,
}

// Failure has the parts of an error that decide about another attempt.
type Failure struct {
	Status codes.Code
	Reason string        // reason of the contract; empty if there is none
	After  time.Duration // pause that the server asks for; 0 if it asks for none
	Final  bool          // waiting cannot help, whatever the status
}

// Worth reports whether a failed call can succeed by waiting, and may be sent again. A call is
// repeatable if it may be sent again when it is unknown whether it was applied.
//
// UNAVAILABLE is retried after AIP-194 (google.aip.dev/194). So is CANCELLED that the caller did
// not cause: the other side dropped the call. RESOURCE_EXHAUSTED is retried only if the server
// names a pause. ABORTED and DEADLINE_EXCEEDED are never retried: the first needs a decision, the
// second has used up its time.
func (f Failure) Worth(repeatable bool) bool {
	if f.Final || (!repeatable && !nothingStored[f.Reason]) {
		return false
	}
	switch f.Status {
	case codes.Unavailable, codes.Canceled:
		return true
	case codes.ResourceExhausted:
		return f.After > 0
	}
	return false
}

// Pause returns the time to wait after a number of consecutive failures: exponential backoff with
// full jitter; random is in [0, 1). The jitter is added to a pause that the server asked for, so
// that clients which were refused together do not return together.
func (f Failure) Pause(failures int, random float64) time.Duration {
	bound := min(float64(maxDelay), float64(initialDelay)*math.Exp2(float64(failures-1)))
	return f.After + time.Duration(random*bound)
}

// Attempts are the attempts of one call. Create them with [New].
type Attempts struct {
	Most       int       // most attempts, the first included
	GiveUp     time.Time // no attempt starts at this time or later
	Repeatable bool      // see [Failure.Worth]
	failures   int
}

// New returns the attempts of a call that is retried for some time.
func New(patience time.Duration, repeatable bool) *Attempts {
	return &Attempts{Most: maxAttempts, GiveUp: time.Now().Add(patience), Repeatable: repeatable}
}

// pause returns the time to wait before the next attempt, or false if no attempt is left.
func (a *Attempts) pause(now, deadline time.Time, failure Failure, random float64) (time.Duration, bool) {
	a.failures++
	if a.failures >= a.Most || !failure.Worth(a.Repeatable) {
		return 0, false
	}
	pause := failure.Pause(a.failures, random)
	return pause, Before(now.Add(pause), a.GiveUp, deadline)
}

// Before reports whether an attempt at a time starts before a call gives up, and before its
// deadline if it has one (the zero time means no deadline).
func Before(next, giveUp, deadline time.Time) bool {
	return next.Before(giveUp) && (deadline.IsZero() || next.Before(deadline))
}

// Wait waits for the next attempt of a failed call. It returns false at once if no attempt is left,
// and when the context ends.
func (a *Attempts) Wait(ctx context.Context, failure Failure) bool {
	deadline, _ := ctx.Deadline()
	pause, again := a.pause(time.Now(), deadline, failure, rand.Float64())
	return again && Sleep(ctx, pause)
}

// Sleep waits for some time. It returns false if the context ended earlier.
func Sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
