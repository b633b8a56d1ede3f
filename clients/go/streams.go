package tuskpoint

import (
	"context"
	"errors"
	"io"
	"iter"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"tuskpoint.dev/go/tuskpoint/internal/retry"
	"tuskpoint.dev/go/tuskpoint/internal/wire"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// resumable is a stream that can be requested again, and the position up to which it was delivered:
// Q are its requests, F its frames, T its items.
type resumable[Q, F, T any] interface {
	// nextRequest returns the request for the rest of the stream.
	nextRequest() *Q

	// add adds the next frame. It returns the item that the frame completes, if any.
	add(frame *F) (item T, complete bool, err error)

	// end checks the end of the stream; it returns an error if the stream is incomplete.
	end() error
}

// following has the parameters for reading a resumable stream.
type following[Q, F, T any] struct {
	calls    *caller
	open     func(context.Context, *Q, ...grpc.CallOption) (grpc.ServerStreamingClient[F], error)
	start    func() resumable[Q, F, T]
	patience time.Duration // deadline of each connection whose context has none; 0 means no deadline
	resumes  bool          // the stream resumes after an item was delivered
}

// follow reads the stream that start returns.
func follow[Q, F, T any, C resumable[Q, F, T]](
	ctx context.Context, calls *caller, patience time.Duration, resumes bool,
	open func(context.Context, *Q, ...grpc.CallOption) (grpc.ServerStreamingClient[F], error),
	start func() C,
) iter.Seq2[T, error] {
	begun := func() resumable[Q, F, T] { return start() }
	return following[Q, F, T]{calls, open, begun, patience, resumes}.all(ctx)
}

// all reads the stream, over as many connections as needed. It ends with an error, or without one.
func (f following[Q, F, T]) all(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		underway := f.start()
		tried := newResumeAttempts(f.calls.times, f.resumes)
		deliver := func(item T) bool {
			tried.delivered = true
			return yield(item, nil)
		}
		for {
			tried.begun = time.Now()
			shown := f.calls.shown()
			enough, failure := f.connection(ctx, underway, deliver)
			if enough || failure == nil {
				return
			}
			if tried.mayResume() && f.calls.replaced(shown, failure) {
				continue
			}
			if last := tried.wait(ctx, f.calls, failure); last != nil {
				var none T
				yield(none, last)
				return
			}
		}
	}
}

// connection reads one connection to its end. It returns true if the reader has stopped.
func (f following[Q, F, T]) connection(
	ctx context.Context, underway resumable[Q, F, T], deliver func(T) bool,
) (bool, *Error) {
	ctx, cancel := bounded(ctx, f.patience)
	defer cancel()
	stream, err := f.open(ctx, underway.nextRequest())
	if err != nil {
		return false, f.calls.read(ctx, err)
	}
	for {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = underway.end()
			if err == nil {
				return false, nil
			}
		}
		if err != nil {
			return false, f.calls.read(ctx, err)
		}
		item, complete, err := underway.add(frame)
		if err != nil {
			return false, f.calls.read(ctx, err)
		}
		if complete && !deliver(item) {
			return true, nil
		}
	}
}

// connected is the time after which an attempt counts as connected: trying to connect takes less.
const connected = 30 * time.Second

// resumeAttempts are the attempts of a stream that may resume after a break.
//
// The first connection has the retries of any call. After a connection that delivered an item or
// lasted a while, retries continue for the resume timeout. The timeout restarts after each such
// connection: a watch may have nothing to deliver for hours.
type resumeAttempts struct {
	times     times
	resumes   bool
	tried     *retry.Attempts
	begun     time.Time // of the connection
	delivered bool      // since the last failure
}

func newResumeAttempts(times times, resumes bool) *resumeAttempts {
	return &resumeAttempts{
		times: times, resumes: resumes, tried: retry.New(times.quick, true), begun: time.Now(),
	}
}

// mayResume reports whether another connection can deliver the rest of the stream.
func (p *resumeAttempts) mayResume() bool { return p.resumes || !p.delivered }

func (p *resumeAttempts) wait(ctx context.Context, calls *caller, failure *Error) *Error {
	if !p.mayResume() {
		return failure
	}
	if p.resumes && (p.delivered || time.Since(p.begun) >= connected) {
		p.delivered = false
		p.tried = retry.New(p.times.resume, true)
		p.tried.Most = math.MaxInt
	}
	return calls.waitFor(ctx, p.tried, failure)
}

// mapped converts the items of a sequence, up to the first error.
func mapped[A, B any](all iter.Seq2[A, error], convert func(A) (B, bool)) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		for item, err := range all {
			if err != nil {
				var none B
				yield(none, err)
				return
			}
			if converted, wanted := convert(item); wanted && !yield(converted, nil) {
				return
			}
		}
	}
}

// loadStream is the stream of one checkpoint.
type loadStream struct {
	request   *tuskpointv1.LoadCheckpointRequest
	assembler wire.Assembler[tuskpointv1.Checkpoint]
	loaded    bool
}

func (c *loadStream) nextRequest() *tuskpointv1.LoadCheckpointRequest {
	c.assembler = wire.AssembleCheckpoints()
	return c.request
}

func (c *loadStream) add(
	frame *tuskpointv1.LoadCheckpointResponse,
) (*tuskpointv1.Checkpoint, bool, error) {
	complete, err := c.assembler.Add(frame.GetCheckpoint(), frame.GetChunk())
	c.loaded = c.loaded || complete != nil
	return complete, complete != nil, err
}

func (c *loadStream) end() error {
	if err := c.assembler.End(); err != nil {
		return err
	}
	if !c.loaded {
		return wire.Breach("the stream ended without a checkpoint")
	}
	return nil
}

// listStream is the stream of a listing.
type listStream struct {
	request   *tuskpointv1.ListCheckpointsRequest
	assembler wire.Assembler[tuskpointv1.Checkpoint]
}

func (c *listStream) nextRequest() *tuskpointv1.ListCheckpointsRequest {
	c.assembler = wire.AssembleCheckpoints()
	return c.request
}

func (c *listStream) add(
	frame *tuskpointv1.ListCheckpointsResponse,
) (*tuskpointv1.Checkpoint, bool, error) {
	complete, err := c.assembler.Add(frame.GetCheckpoint(), frame.GetChunk())
	return complete, complete != nil, err
}

func (c *listStream) end() error { return c.assembler.End() }

// replayStream is a replay that resumes after the last checkpoint that it delivered.
type replayStream struct {
	request   *tuskpointv1.ReplayThreadRequest
	assembler wire.Assembler[tuskpointv1.Checkpoint]
	delivered *tuskpointv1.CheckpointRef
}

func (c *replayStream) nextRequest() *tuskpointv1.ReplayThreadRequest {
	c.assembler = wire.AssembleCheckpoints()
	if c.delivered == nil {
		return c.request
	}
	rest := proto.CloneOf(c.request)
	rest.FromCheckpointId = c.delivered.GetCheckpointId()
	return rest
}

func (c *replayStream) add(
	frame *tuskpointv1.ReplayThreadResponse,
) (*tuskpointv1.Checkpoint, bool, error) {
	complete, err := c.assembler.Add(frame.GetCheckpoint(), frame.GetChunk())
	// The request starts at this ID, inclusive, and several namespaces may have the ID.
	if complete == nil || !c.isNew(complete.GetRef()) {
		return nil, false, err
	}
	c.delivered = complete.GetRef()
	return complete, true, nil
}

func (c *replayStream) isNew(ref *tuskpointv1.CheckpointRef) bool {
	id, last := ref.GetCheckpointId(), c.delivered.GetCheckpointId()
	if c.delivered == nil || id != last {
		return c.delivered == nil || id > last
	}
	return ref.GetCheckpointNs() > c.delivered.GetCheckpointNs()
}

func (c *replayStream) end() error { return c.assembler.End() }

// watchStream is a watch that resumes after the last cursor that it delivered, and never ends.
type watchStream struct {
	request   *tuskpointv1.WatchThreadRequest
	assembler wire.Assembler[tuskpointv1.ThreadEvent]
}

func (c *watchStream) nextRequest() *tuskpointv1.WatchThreadRequest {
	c.assembler = wire.AssembleEvents()
	return proto.CloneOf(c.request)
}

func (c *watchStream) add(
	frame *tuskpointv1.WatchThreadResponse,
) (*tuskpointv1.ThreadEvent, bool, error) {
	complete, err := c.assembler.Add(frame.GetEvent(), frame.GetChunk())
	if complete != nil {
		c.request.Cursor = complete.GetCursor()
	}
	return complete, complete != nil, err
}

// end returns an error after which the watch resumes: a watch has no end of its own.
func (c *watchStream) end() error { return endedWatch() }

func endedWatch() error {
	return &Error{
		Status: codes.Unavailable, Message: "the server ended the watch", kind: unavailable,
	}
}

// adoptionStream is an adoption that delivers only new stages after a break.
type adoptionStream struct {
	request *tuskpointv1.AdoptHandoffRequest // with a request_id
	stage   AdoptStage
	fetched uint64
}

func (c *adoptionStream) nextRequest() *tuskpointv1.AdoptHandoffRequest { return c.request }

func (c *adoptionStream) add(
	frame *tuskpointv1.AdoptHandoffResponse,
) (*tuskpointv1.AdoptHandoffResponse, bool, error) {
	stage, fetched := frame.GetStage(), frame.GetFetchedBytes()
	if stage < c.stage || (stage == c.stage && fetched <= c.fetched) {
		return nil, false, nil
	}
	c.stage, c.fetched = stage, fetched
	return frame, true, nil
}

func (c *adoptionStream) end() error {
	if c.stage < Adopted {
		return wire.Breach("the stream ended without an adoption")
	}
	return nil
}
