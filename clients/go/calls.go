package tuskpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"tuskpoint.dev/go/tuskpoint/internal/retry"
	"tuskpoint.dev/go/tuskpoint/internal/wire"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// caller makes the calls of one client: it sets deadlines, retries calls where that is safe, and
// converts failures to an *Error. It works as gRPC interceptors, so that the contract's typed
// clients behave the same.
type caller struct {
	target    string
	times     times
	token     func() (string, error) // token of the calls; nil for none
	logger    func() *slog.Logger    // logger of warnings
	closed    atomic.Bool
	answered  atomic.Bool // the target has answered this process
	handshake handshake
}

func (c *caller) unary(
	ctx context.Context, method string, request, reply any,
	connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if ctx.Value(contacting{}) != nil {
		return invoke(ctx, method, request, reply, connection, options...)
	}
	if failure := c.reach(ctx, connection); failure != nil {
		return failure
	}
	message, isMessage := request.(proto.Message)
	if isMessage {
		message = withRequestID(message)
		request = message
	}
	ctx, cancel := bounded(ctx, c.patience(method, message))
	defer cancel()
	tried := retry.New(c.times.quick, repeatable(message))
	for {
		shown := c.shown()
		err := invoke(ctx, method, request, reply, connection, options...)
		if err == nil {
			return nil
		}
		failure := c.read(ctx, err)
		if failure.Status == codes.Internal && failure.Reason == "" {
			failure = c.unsent(message, failure)
		}
		if tried.Repeatable && c.replaced(shown, failure) {
			continue
		}
		if last := c.waitFor(ctx, tried, failure); last != nil {
			return last
		}
	}
}

func (c *caller) stream(
	ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string,
	open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if failure := c.reach(ctx, connection); failure != nil {
		return nil, failure
	}
	stream, err := open(ctx, description, connection, method, options...)
	if err != nil {
		return nil, c.read(ctx, err)
	}
	return &readStream{stream, ctx, c}, nil
}

// readStream is a stream that fails with errors of this package.
type readStream struct {
	grpc.ClientStream
	ctx   context.Context
	calls *caller
}

func (s *readStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	failure := s.calls.read(s.ctx, err)
	if failure.Status == codes.Internal && failure.Reason == "" {
		return s.calls.dropped(failure)
	}
	return failure
}

func (s *readStream) SendMsg(message any) error {
	err := s.ClientStream.SendMsg(message)
	// EOF means that the stream has failed, and that RecvMsg returns the cause.
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	failure := s.calls.read(s.ctx, err)
	if sent, isMessage := message.(proto.Message); isMessage && failure.Status == codes.Internal {
		return s.calls.unsent(sent, failure)
	}
	return failure
}

// shown returns the token for a call. Without a usable token, the call itself fails.
func (c *caller) shown() string {
	if c.token == nil {
		return ""
	}
	token, _ := c.token()
	return token
}

// replaced reports whether a call was refused for a token that was replaced during the call: the
// call may then be repeated at once.
func (c *caller) replaced(shown string, failure *Error) bool {
	return failure.Status == codes.Unauthenticated && c.shown() != shown
}

// waitFor waits for the next attempt of a failed call. It returns the final error if no attempt is
// left.
func (c *caller) waitFor(ctx context.Context, tried *retry.Attempts, failure *Error) *Error {
	switch {
	case tried.Wait(ctx, failure.retrying()):
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return cancelledBy(ctx, c.target)
	}
	return failure
}

// read returns the error of a failed call.
func (c *caller) read(ctx context.Context, err error) *Error {
	var failure *Error
	if errors.As(err, &failure) {
		return failure
	}
	var breach wire.Breach
	if errors.As(err, &breach) {
		return brokenContract(breach.Error())
	}
	failed := status.Convert(err)
	switch failed.Code() {
	case codes.Canceled:
		if c.closed.Load() {
			return closedClient()
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return cancelledBy(ctx, c.target)
		}
	case codes.Unavailable:
		if problem := c.handshake.refusal(); problem != nil && len(failed.Details()) == 0 {
			return untrusted(c.target, problem)
		}
	}
	return fromStatus(failed, c.target)
}

// unsent returns the error for a call that gRPC failed with INTERNAL: for a request that cannot be
// encoded, or for a connection that broke during the send.
func (c *caller) unsent(request proto.Message, failure *Error) *Error {
	if _, err := proto.Marshal(request); err != nil {
		return unencodable(err)
	}
	return c.dropped(failure)
}

// unencodable returns the error for a request that cannot be encoded, such as a request with a
// string that is not UTF-8.
func unencodable(cause error) *Error {
	wrong := invalidField("request", "it cannot be sent: "+cause.Error())
	wrong.cause = cause
	return wrong
}

// dropped returns the error for a call whose connection broke. The service gives a reason with
// every error; gRPC gives none when a stream is ended while the client still sends, for example by
// a draining server.
func (c *caller) dropped(failure *Error) *Error {
	return fromStatus(status.New(codes.Unavailable, failure.status.Message()), c.target)
}

// bounded returns a context with a deadline: its own, or the default. A patience of 0 means no
// deadline.
func bounded(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has || patience == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, patience)
}

// slow has the calls that may wait for the blob store or touch many rows, whatever they request.
var slow = map[string]bool{
	tuskpointv1.ThreadService_DeleteThread_FullMethodName:      true,
	tuskpointv1.ThreadService_SetRetention_FullMethodName:      true,
	tuskpointv1.ThreadService_SetSearchable_FullMethodName:     true,
	tuskpointv1.ThreadService_CopyThread_FullMethodName:        true,
	tuskpointv1.ThreadService_PruneThreads_FullMethodName:      true,
	tuskpointv1.ThreadService_DeleteRuns_FullMethodName:        true,
	tuskpointv1.ThreadService_PreviewRetention_FullMethodName:  true,
	tuskpointv1.ThreadService_EraseThreads_FullMethodName:      true,
	tuskpointv1.ThreadService_ForkThread_FullMethodName:        true,
	tuskpointv1.ThreadService_RollbackThread_FullMethodName:    true,
	tuskpointv1.ThreadService_DiffCheckpoints_FullMethodName:   true,
	tuskpointv1.HandoffService_CreateHandoff_FullMethodName:    true,
	tuskpointv1.SnapshotService_CreateSnapshot_FullMethodName:  true,
	tuskpointv1.SnapshotService_RestoreSnapshot_FullMethodName: true,
	tuskpointv1.SnapshotService_DeleteSnapshot_FullMethodName:  true,
	tuskpointv1.AdminService_Flush_FullMethodName:              true,
}

// patience returns the default deadline of a unary call.
func (c *caller) patience(method string, request proto.Message) time.Duration {
	asks, canAsk := request.(interface{ GetDurability() tuskpointv1.Durability })
	if slow[method] || (canAsk && asks.GetDurability() == Certified) {
		return c.times.long
	}
	if lease, acquires := request.(*tuskpointv1.AcquireLeaseRequest); acquires {
		return c.times.quick + lease.GetWait().AsDuration()
	}
	return c.times.quick
}

// repeatable reports whether a request may be sent again if it is unknown whether it was applied. A
// save without an ID and a mutation without a name are not repeatable; all other requests are
// upserts or reads, or have a request_id.
func repeatable(request proto.Message) bool {
	if save, isSave := request.(*tuskpointv1.SaveCheckpointRequest); isSave {
		return save.GetCheckpoint().GetRef().GetCheckpointId() != ""
	}
	named, canBeNamed := request.(interface{ GetRequestId() string })
	return request != nil && (!canBeNamed || named.GetRequestId() != "")
}

// withRequestID returns the request with an empty request_id filled in, so that it may be sent
// twice.
func withRequestID[M proto.Message](request M) M {
	named, canBeNamed := any(request).(interface{ GetRequestId() string })
	if !canBeNamed || named.GetRequestId() != "" {
		return request
	}
	copied := proto.CloneOf(request)
	fields := copied.ProtoReflect().Descriptor().Fields()
	copied.ProtoReflect().Set(fields.ByName("request_id"), protoreflect.ValueOfString(rand.Text()))
	return copied
}
