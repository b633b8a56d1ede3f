package tuskpoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"google.golang.org/grpc/codes"

	"tuskpoint.dev/go/tuskpoint/internal/retry"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

const (
	maxOwnerBytes   = 256
	maxProblemBytes = 1024

	firstEffectPause   = 50 * time.Millisecond
	longestEffectPause = 2 * time.Second
)

// Attempt is an attempt that must do its work now.
type Attempt struct {
	// IdempotencyKey is the key to send to the outside world, so that it does the work once.
	IdempotencyKey string

	// Number of the attempt; the first attempt is 1.
	Number uint32
}

// NotDone marks an error of the work of [DoOnce]: the work was certainly not done, and may be tried
// again. Do not mark a timeout: a timeout does not say whether the work was done.
func NotDone(err error) error { return &outcomeError{err, OutcomeNotDone} }

// Refused marks an error of the work of [DoOnce]: the work was certainly not done, and another
// attempt makes no sense, as after a card was declined.
func Refused(err error) error { return &outcomeError{err, OutcomeRefused} }

// outcomeError is an error of work whose outcome is known.
type outcomeError struct {
	error
	outcome Outcome
}

func (e *outcomeError) Unwrap() error { return e.error }

// DoOnce does work in the outside world once per thread and key, and returns its recorded result.
//
// If an earlier attempt did the work, DoOnce returns the recorded result without doing the work. If
// an attempt runs elsewhere, DoOnce waits until that attempt reports or is unknown, or until the
// context ends. The result is recorded as JSON, or as it is if T is []byte. Options may be nil.
//
// If the work returns an error, panics or exits its goroutine, the effect is unknown, unless the
// error is marked with [NotDone] or [Refused]. The outcome of work that has begun is reported even
// if the context has ended.
//
// Errors: [ErrEffectUnknown] if it is unknown whether an earlier attempt did the work,
// [ErrEffectRunning] if the deadline passed while another attempt ran, [ErrEffectNotDone] and
// [ErrEffectRefused] if the work, or an earlier attempt, failed with a marked error,
// [ErrEffectInputChanged] if the effect was begun with another input, and the errors of the work.
func DoOnce[T any](
	ctx context.Context, client *Client, threadID, key string, options *EffectOptions,
	work func(ctx context.Context, attempt Attempt) (T, error),
) (T, error) {
	var result T
	effect, err := client.once(ctx, threadID, key, options, func(attempt Attempt) (any, error) {
		return work(ctx, attempt)
	})
	if err == nil {
		err = decodeResult(effect, &result)
	}
	return result, err
}

// once returns an effect that is done.
func (c *Client) once(
	ctx context.Context, threadID, key string, options *EffectOptions,
	work func(attempt Attempt) (any, error),
) (*tuskpointv1.Effect, error) {
	given := valueOf(options)
	given.RequestID = ""
	if given.Owner == "" {
		given.Owner = thisOwner()
	}
	var running *tuskpointv1.Effect
	for bound := firstEffectPause; ; bound = min(bound*3/2, longestEffectPause) {
		answer, err := c.BeginEffect(ctx, threadID, key, &given)
		effect := answer.GetEffect()
		switch {
		case err != nil && running != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return nil, runningError(running, ctx.Err())
		case err != nil:
			return nil, err
		case answer.GetRun():
			return c.attempt(ctx, effect, &ChangeOptions{Durability: given.Durability}, work)
		case effect.GetState() == tuskpointv1.EffectState_EFFECT_STATE_DONE:
			return effect, nil
		case effect.GetState() != tuskpointv1.EffectState_EFFECT_STATE_RUNNING:
			return nil, endingError(effect, nil)
		}
		running = effect
		pause := bound/2 + time.Duration(rand.Int64N(int64(bound/2)))
		if !retry.Sleep(ctx, pause) {
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, cancelledBy(ctx, c.calls.target)
			}
			return nil, runningError(running, ctx.Err())
		}
	}
}

// attempt does the work of an attempt, and reports its outcome.
func (c *Client) attempt(
	ctx context.Context, begun *tuskpointv1.Effect, options *ChangeOptions,
	work func(attempt Attempt) (any, error),
) (effect *tuskpointv1.Effect, err error) {
	// Reports must arrive even if the caller has given up.
	reporting := context.WithoutCancel(ctx)
	fail := func(outcome Outcome, problem string) (*tuskpointv1.Effect, error) {
		return c.FailEffect(reporting, begun, outcome, problem, options)
	}
	returned := false
	defer func() {
		if !returned { // The work panicked, or ended its goroutine.
			if _, failure := fail(OutcomeUnknown, "the work did not return"); failure != nil {
				c.calls.logger().Warn("the outcome of an effect was not recorded; it will be unknown",
					"thread", begun.GetThreadId(), "key", begun.GetKey(), "error", failure)
			}
		}
	}()
	result, err := work(Attempt{begun.GetIdempotencyKey(), begun.GetAttempt()})
	returned = true
	var known *outcomeError
	switch {
	case errors.As(err, &known):
		recorded, failure := fail(known.outcome, known.Error())
		if failure != nil {
			return nil, errors.Join(err, failure)
		}
		if recorded.GetState() == tuskpointv1.EffectState_EFFECT_STATE_DONE {
			return recorded, nil // An earlier attempt did the work, and reported late.
		}
		return nil, endingError(recorded, known.error)
	case err != nil:
		_, failure := fail(OutcomeUnknown, err.Error())
		return nil, joined(err, failure)
	}
	effect, err = c.CompleteEffect(reporting, begun, result, options)
	if err != nil {
		_, failure := fail(OutcomeUnknown,
			"the work was done, but its result was not recorded: "+err.Error())
		return nil, joined(err, failure)
	}
	return effect, nil
}

// joined returns the error of an attempt, with the error of its report if that failed too.
func joined(err, failure error) error {
	if failure == nil {
		return err
	}
	return errors.Join(err, failure)
}

// runningError returns the error of an effect that another attempt does.
func runningError(effect *tuskpointv1.Effect, cause error) *Error {
	return effectError(effectRunning, effect, cause, fmt.Sprintf(
		"effect %s runs elsewhere: %s; wait longer, or let that attempt report",
		naming(effect), describing(effect)))
}

// endingError returns the error of an effect that ended without being done.
func endingError(effect *tuskpointv1.Effect, cause error) *Error {
	why := effect.GetError()
	if effect.GetState() == tuskpointv1.EffectState_EFFECT_STATE_FAILED {
		if why == "" {
			why = "no reason was given"
		}
		if effect.GetRetryable() {
			return effectError(effectNotDone, effect, cause,
				fmt.Sprintf("effect %s was not done: %s; try again", naming(effect), why))
		}
		return effectError(effectRefused, effect, cause, fmt.Sprintf("effect %s was refused: %s; "+
			"another attempt makes no sense: change the input and use another key",
			naming(effect), why))
	}
	if why != "" {
		why = " (" + why + ")"
	}
	return effectError(effectUnknown, effect, cause, fmt.Sprintf("it is unknown whether effect %s "+
		"was done: %s and reported no outcome%s; look in the outside world for idempotency key %s, "+
		"then decide with ResolveEffect or `tuskpoint effects resolve`; set RetryUnknown only if "+
		"the outside world honours the key",
		naming(effect), describing(effect), why, effect.GetIdempotencyKey()))
}

func effectError(kind *kind, effect *tuskpointv1.Effect, cause error, message string) *Error {
	return &Error{
		Status: codes.FailedPrecondition, Message: message, Effect: effect, kind: kind, cause: cause,
	}
}

func unreadableResult(effect *tuskpointv1.Effect, problem string) *Error {
	return &Error{
		Status:  codes.FailedPrecondition,
		Message: fmt.Sprintf("the result of effect %s %s", naming(effect), problem),
		kind:    unreadable,
	}
}

func naming(effect *tuskpointv1.Effect) string {
	return fmt.Sprintf("%q of thread %q", effect.GetKey(), effect.GetThreadId())
}

func describing(effect *tuskpointv1.Effect) string {
	owner := effect.GetOwner()
	if owner == "" {
		owner = "an unnamed caller"
	}
	return fmt.Sprintf("attempt %d began at %s by %s", effect.GetAttempt(),
		effect.GetAttemptTime().AsTime().Format(time.RFC3339), owner)
}

// thisOwner returns who runs an attempt: host and process.
func thisOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return cut(fmt.Sprintf("%s:%d", host, os.Getpid()), maxOwnerBytes)
}
