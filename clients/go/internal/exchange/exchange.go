// Package exchange makes the saves, writes and loads of many goroutines on few streams.
//
// Each stream has one goroutine that writes and one that reads. Calls that arrive while earlier
// calls are in progress wait, and go together in the next message: batches grow with the load, and
// without load a call goes at once. A broken stream is reopened, and the unanswered calls are sent
// again first, in order. The contract is the comment of CheckpointService.Exchange.
//
// The package handles frames and answers without their meaning: it never reads a request, and
// passes errors in answers to its caller.
package exchange

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint/internal/retry"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// largeFrame is the size in bytes above which a frame is sent on the second stream, where it delays
// no small frame.
const largeFrame = 256 << 10

// Config opens the streams of an exchange and classifies their errors.
type Config struct {
	// Open opens a stream.
	Open func(context.Context) (tuskpointv1.CheckpointService_ExchangeClient, error)

	// Failure returns what decides about another attempt after the error of a stream.
	Failure func(error) retry.Failure

	// Credential returns the credential of a new stream. The exchange only compares credentials:
	// after a change, all calls use a new stream, also the calls of a stream that was refused.
	Credential func() string

	// Closed is the error of calls on a closed exchange.
	Closed error

	// MaxMessageBytes is the size of the largest message to send.
	MaxMessageBytes int
}

// Exchange makes calls. Any number of goroutines may use it at once. Create one with [New].
//
// Small and large frames have streams of their own, each with its own session. Calls on one stream
// take effect in order; a call that starts after the answer to another call always follows that
// call.
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

// Close ends the streams. Calls in progress and later calls fail with [Config.Closed]. Close
// returns when no goroutine is left.
func (e *Exchange) Close() {
	e.cancel()
	e.small.close()
	e.large.close()
	e.running.Wait()
}

// Do makes a call and returns its last answer, which may contain an error. After a break of the
// stream the call is sent again where that can help and is safe, as long as attempts start before
// giveUp. Otherwise Do returns the error that broke the stream; if the context ends first, the
// status of the context. The answer to a call whose context ended is dropped.
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
		case result := <-waiting.done: // the answer arrived at the same time
			return result.answer, result.err
		default:
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}
