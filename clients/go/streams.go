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

// course is a stream that may be opened again, with what was delivered of it: Q are its requests,
// F its frames, T what it delivers.
type course[Q, F, T any] interface {
	// begin returns the request for what was not delivered yet.
	begin() *Q

	// take takes the next frame. It returns what is to be delivered now, if anything is.
	take(frame *F) (item T, ready bool, err error)

	// end takes the end of the stream; it returns an error if it must not end here.
	end() error
}

// following is how a course is read.
type following[Q, F, T any] struct {
	calls     *caller
	open      func(context.Context, *Q, ...grpc.CallOption) (grpc.ServerStreamingClient[F], error)
	start     func() course[Q, F, T]
	patience  time.Duration // deadline of each connection without another; 0 is none
	resumable bool          // it goes on after something was delivered
}

// follow reads the course that start begins.
func follow[Q, F, T any, C course[Q, F, T]](
	ctx context.Context, calls *caller, patience time.Duration, resumable bool,
	open func(context.Context, *Q, ...grpc.CallOption) (grpc.ServerStreamingClient[F], error),
	start func() C,
) iter.Seq2[T, error] {
	begun := func() course[Q, F, T] { return start() }
	return following[Q, F, T]{calls, open, begun, patience, resumable}.all(ctx)
}

// all reads the course, over as many connections as it takes. It ends with an error, or without.
func (f following[Q, F, T]) all(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		underway := f.start()
		tried := newPersistence(f.calls.times, f.resumable)
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
			if tried.goesOn() && f.calls.replaced(shown, failure) {
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

// connection reads one connection to its end. It returns true if the reader has had enough.
func (f following[Q, F, T]) connection(
	ctx context.Context, underway course[Q, F, T], deliver func(T) bool,
) (bool, *Error) {
	ctx, cancel := bounded(ctx, f.patience)
	defer cancel()
	stream, err := f.open(ctx, underway.begin())
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
		item, ready, err := underway.take(frame)
		if err != nil {
			return false, f.calls.read(ctx, err)
		}
		if ready && !deliver(item) {
			return true, nil
		}
	}
}

// stood is how long a connection lasts that was one: trying to connect takes less.
const stood = 30 * time.Second

// persistence is the attempts of a stream that may go on where it broke off.
//
// The first connection has the time of any call. One that delivered something, or stood for a
// while, is followed by others for as long as the resume timeout allows, counted anew whenever that
// is so again: a watch may have nothing to deliver for hours.
type persistence struct {
	times     times
	resumable bool
	tried     *retry.Attempts
	begun     time.Time // of the connection
	delivered bool      // since the last failure
}

func newPersistence(times times, resumable bool) *persistence {
	return &persistence{
		times: times, resumable: resumable, tried: retry.New(times.quick, true), begun: time.Now(),
	}
}

// goesOn reports whether another connection can give what is left.
func (p *persistence) goesOn() bool { return p.resumable || !p.delivered }

func (p *persistence) wait(ctx context.Context, calls *caller, failure *Error) *Error {
	if !p.goesOn() {
		return failure
	}
	if p.resumable && (p.delivered || time.Since(p.begun) >= stood) {
		p.delivered = false
		p.tried = retry.New(p.times.resume, true)
		p.tried.Most = math.MaxInt
	}
	return calls.waitFor(ctx, p.tried, failure)
}

// mapped passes the items of a sequence on as something else, up to the first error.
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

// loadCourse reads one checkpoint.
type loadCourse struct {
	request   *tuskpointv1.LoadCheckpointRequest
	assembler wire.Assembler[tuskpointv1.Checkpoint]
	loaded    bool
}

func (c *loadCourse) begin() *tuskpointv1.LoadCheckpointRequest {
	c.assembler = wire.AssembleCheckpoints()
	return c.request
}

func (c *loadCourse) take(
	frame *tuskpointv1.LoadCheckpointResponse,
) (*tuskpointv1.Checkpoint, bool, error) {
	complete, err := c.assembler.Add(frame.GetCheckpoint(), frame.GetChunk())
	c.loaded = c.loaded || complete != nil
	return complete, complete != nil, err
}

func (c *loadCourse) end() error {
	if err := c.assembler.End(); err != nil {
		return err
	}
	if !c.loaded {
		return wire.Breach("the stream ended without a checkpoint")
	}
	return nil
}

// listCourse reads a listing.
type listCourse struct {
	request   *tuskpointv1.ListCheckpointsRequest
	assembler wire.Assembler[tuskpointv1.Checkpoint]
}

func (c *listCourse) begin() *tuskpointv1.ListCheckpointsRequest {
	c.assembler = wire.AssembleCheckpoints()
	return c.request
}

func (c *listCourse) take(
	frame *tuskpointv1.ListCheckpointsResponse,
) (*tuskpointv1.Checkpoint, bool, error) {
	complete, err := c.assembler.Add(frame.GetCheckpoint(), frame.GetChunk())
	return complete, complete != nil, err
}

func (c *listCourse) end() error { return c.assembler.End() }

// replayCourse reads a replay; it goes on after the last checkpoint that it delivered.
type replayCourse struct {
	request   *tuskpointv1.ReplayThreadRequest
	assembler wire.Assembler[tuskpointv1.Checkpoint]
	delivered *tuskpointv1.CheckpointRef
}

func (c *replayCourse) begin() *tuskpointv1.ReplayThreadRequest {
	c.assembler = wire.AssembleCheckpoints()
	if c.delivered == nil {
		return c.request
	}
	rest := proto.CloneOf(c.request)
	rest.FromCheckpointId = c.delivered.GetCheckpointId()
	return rest
}

func (c *replayCourse) take(
	frame *tuskpointv1.ReplayThreadResponse,
) (*tuskpointv1.Checkpoint, bool, error) {
	complete, err := c.assembler.Add(frame.GetCheckpoint(), frame.GetChunk())
	// The bound of the request includes its ID, which several namespaces may have.
	if complete == nil || !c.isNew(complete.GetRef()) {
		return nil, false, err
	}
	c.delivered = complete.GetRef()
	return complete, true, nil
}

func (c *replayCourse) isNew(ref *tuskpointv1.CheckpointRef) bool {
	id, last := ref.GetCheckpointId(), c.delivered.GetCheckpointId()
	if c.delivered == nil || id != last {
		return c.delivered == nil || id > last
	}
	return ref.GetCheckpointNs() > c.delivered.GetCheckpointNs()
}

func (c *replayCourse) end() error { return c.assembler.End() }

// watchCourse reads a watch; it goes on after the last cursor that it delivered, and never ends.
type watchCourse struct {
	request   *tuskpointv1.WatchThreadRequest
	assembler wire.Assembler[tuskpointv1.ThreadEvent]
}

func (c *watchCourse) begin() *tuskpointv1.WatchThreadRequest {
	c.assembler = wire.AssembleEvents()
	return proto.CloneOf(c.request)
}

func (c *watchCourse) take(
	frame *tuskpointv1.WatchThreadResponse,
) (*tuskpointv1.ThreadEvent, bool, error) {
	complete, err := c.assembler.Add(frame.GetEvent(), frame.GetChunk())
	if complete != nil {
		c.request.Cursor = complete.GetCursor()
	}
	return complete, complete != nil, err
}

// end returns an error after which the watch goes on: the stream has ended, and the thread has not.
func (c *watchCourse) end() error {
	return &Error{
		Status: codes.Unavailable, Message: "the server ended the watch", kind: unavailable,
	}
}

// adoptCourse reads an adoption; begun again, it delivers only what is further than before.
type adoptCourse struct {
	request *tuskpointv1.AdoptHandoffRequest // with a request_id
	stage   AdoptStage
	fetched uint64
}

func (c *adoptCourse) begin() *tuskpointv1.AdoptHandoffRequest { return c.request }

func (c *adoptCourse) take(
	frame *tuskpointv1.AdoptHandoffResponse,
) (*tuskpointv1.AdoptHandoffResponse, bool, error) {
	stage, fetched := frame.GetStage(), frame.GetFetchedBytes()
	if stage < c.stage || (stage == c.stage && fetched <= c.fetched) {
		return nil, false, nil
	}
	c.stage, c.fetched = stage, fetched
	return frame, true, nil
}

func (c *adoptCourse) end() error {
	if c.stage < Adopted {
		return wire.Breach("the stream ended without an adoption")
	}
	return nil
}
