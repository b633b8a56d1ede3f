// Package exchange makes the saves, writes and loads of many goroutines on few streams.
//
// Each stream has one goroutine that writes and one that reads. Calls that arrive while earlier
// ones are under way wait, and go together in the next message: batches grow with the load, and
// without load a call goes at once. A stream that breaks is opened again, and what had no answer is
// sent again first, in its order. The contract is the comment of CheckpointService.Exchange.
//
// The package knows what frames and answers are, and not what they mean: it never looks into a
// request, and leaves errors in answers to its caller.
package exchange

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint/internal/retry"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// largeFrame is the size in bytes above which a frame goes on the second stream, where it delays no
// small one.
const largeFrame = 256 << 10

// Config is how an exchange opens its streams and reads their errors.
type Config struct {
	// Open opens a stream.
	Open func(context.Context) (tuskpointv1.CheckpointService_ExchangeClient, error)

	// Failure returns what decides about another attempt after the error of a stream.
	Failure func(error) retry.Failure

	// Credential returns the credential of a stream that is opened now. It is only compared: once it
	// changes, calls use a new stream, also those of a stream that was refused.
	Credential func() string

	// Closed is the error of calls on an exchange that is closed.
	Closed error

	// MaxMessageBytes is the size of the largest message to send.
	MaxMessageBytes int
}

// Exchange makes calls. It may be used by any number of goroutines at once. Make one with [New].
//
// Small and large frames go on streams of their own, each with its own session. Calls on one stream
// take effect in their order; a call that begins after another was answered always follows it.
type Exchange struct {
	small, large *lane
	cancel       context.CancelFunc
	running      sync.WaitGroup
}

// New returns an exchange, which opens its streams with the first calls.
func New(config Config) *Exchange {
	ctx, cancel := context.WithCancel(context.Background())
	made := &Exchange{cancel: cancel}
	made.small = newLane(ctx, &config, &made.running)
	made.large = newLane(ctx, &config, &made.running)
	return made
}

// Close ends the streams. Calls under way and later ones fail with [Config.Closed]. It returns when
// no goroutine is left.
func (e *Exchange) Close() {
	e.cancel()
	e.small.close()
	e.large.close()
	e.running.Wait()
}

// Do makes a call and returns its last answer, which may hold an error. After a break of the stream
// the call is sent again where that can help and is safe, as long as attempts begin before giveUp.
// Otherwise it returns the error that broke the stream; if the context ends first, its status. The
// answer to a call whose context ended is dropped.
func (e *Exchange) Do(
	ctx context.Context, call *Call, giveUp time.Time,
) (*tuskpointv1.Answer, error) {
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	lane := e.small
	if len(call.large) > 0 || len(call.body) > largeFrame {
		lane = e.large
	}
	deadline, _ := ctx.Deadline()
	waiting := &pending{call: call, giveUp: giveUp, deadline: deadline, done: make(chan outcome, 1)}
	if err := lane.add(waiting); err != nil {
		return nil, err
	}
	select {
	case result := <-waiting.done:
		return result.answer, result.err
	case <-ctx.Done():
		lane.leave(waiting)
		select {
		case result := <-waiting.done: // it came at the same time
			return result.answer, result.err
		default:
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}
