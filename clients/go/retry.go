package tuskpoint

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
)

// Calls are repeated here and not by gRPC's service config, which knows neither reasons nor
// RetryInfo nor which calls may be sent twice, and ends after 5 attempts: too early to sit out the
// restart of a server.

const (
	maxAttempts  = 64
	initialDelay = 100 * time.Millisecond // upper bound of the first pause
	maxDelay     = 2 * time.Second        // bound that the growth of the bound ends at
)

// nothingStored has the refusals by which the server says that it stored nothing: even a call that
// must not be applied twice may be sent again.
var nothingStored = map[string]bool{
	"DRAINING": true, "JOURNAL_UNAVAILABLE": true, "BACKLOG_FULL": true,
}

// worthRepeating tells whether a failed call can succeed by waiting, and may be sent again.
//
// UNAVAILABLE is repeated after AIP-194 (google.aip.dev/194). So is CANCELLED that the caller did
// not ask for: the other side dropped the call. RESOURCE_EXHAUSTED is repeated only if the server
// says when. ABORTED and DEADLINE_EXCEEDED never are: the one needs a decision, the other has used
// up its time.
func worthRepeating(failure *Error, repeatable bool) bool {
	if failure.final || failure.kind == cancelled {
		return false
	}
	if !repeatable && !nothingStored[failure.Reason] {
		return false
	}
	switch failure.Status {
	case codes.Unavailable, codes.Canceled:
		return true
	case codes.ResourceExhausted:
		return failure.RetryAfter > 0
	}
	return false
}

// attempts are those of one call: exponential backoff with full jitter.
type attempts struct {
	most       int       // most attempts, the first included
	giveUp     time.Time // from then on no attempt begins
	repeatable bool      // the call may be sent again if it is not known whether it was applied
	failures   int
}

func newAttempts(patience time.Duration, repeatable bool) *attempts {
	return &attempts{most: maxAttempts, giveUp: time.Now().Add(patience), repeatable: repeatable}
}

// pause returns the time to wait before the next attempt, or false if there is none. One that the
// server asked for is a floor that the jitter is added to, so that clients which were refused
// together do not return together.
func (a *attempts) pause(now, deadline time.Time, failure *Error, random float64) (time.Duration, bool) {
	a.failures++
	if a.failures >= a.most || !worthRepeating(failure, a.repeatable) {
		return 0, false
	}
	bound := min(float64(maxDelay), float64(initialDelay)*math.Exp2(float64(a.failures-1)))
	pause := failure.RetryAfter + time.Duration(random*bound)
	next := now.Add(pause)
	if !next.Before(a.giveUp) || (!deadline.IsZero() && !next.Before(deadline)) {
		return 0, false
	}
	return pause, true
}

// wait waits for the next attempt of a call that failed. It returns the error to end with, if
// there is none.
func (a *attempts) wait(ctx context.Context, failure *Error, target string) *Error {
	deadline, _ := ctx.Deadline()
	pause, again := a.pause(time.Now(), deadline, failure, rand.Float64())
	if !again {
		return failure
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return failure
		}
		return cancelledBy(ctx, target)
	}
}
