package tuskpoint_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// scripted is a server whose answers a test scripts. Methods that a test does not set are not
// implemented.
type scripted struct {
	tuskpointv1.UnimplementedCheckpointServiceServer
	tuskpointv1.UnimplementedThreadServiceServer
	tuskpointv1.UnimplementedHistoryServiceServer
	tuskpointv1.UnimplementedHandoffServiceServer
	tuskpointv1.UnimplementedAdminServiceServer

	mutex sync.Mutex
	calls int

	save   func(call int, request *tuskpointv1.SaveCheckpointRequest) error
	large  func(call int, begin *tuskpointv1.Frame, stream tuskpointv1.CheckpointService_ExchangeServer) error
	fork   func(call int, request *tuskpointv1.ForkThreadRequest) error
	replay func(call int, request *tuskpointv1.ReplayThreadRequest, send func(*tuskpointv1.ReplayThreadResponse)) error
	watch  func(call int, request *tuskpointv1.WatchThreadRequest, send func(*tuskpointv1.WatchThreadResponse)) error
	adopt  func(call int, request *tuskpointv1.AdoptHandoffRequest, send func(*tuskpointv1.AdoptHandoffResponse)) error
	info   func(call int, ctx context.Context) error
	flush  func(call int, ctx context.Context) error
}

func (s *scripted) next() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.calls++
	return s.calls
}

func (s *scripted) SaveCheckpoint(
	_ context.Context, request *tuskpointv1.SaveCheckpointRequest,
) (*tuskpointv1.SaveCheckpointResponse, error) {
	if err := s.save(s.next(), request); err != nil {
		return nil, err
	}
	return &tuskpointv1.SaveCheckpointResponse{
		Ref: request.GetCheckpoint().GetRef(), Durability: tuskpoint.Journaled,
	}, nil
}

// Exchange answers saves with save and loads with CHECKPOINT_NOT_FOUND; large answers a save with
// large values after it has read their chunks.
func (s *scripted) Exchange(stream tuskpointv1.CheckpointService_ExchangeServer) error {
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		response := &tuskpointv1.ExchangeResponse{}
		for _, frame := range message.GetFrames() {
			channels := frame.GetSave().GetCheckpoint().GetState().GetChannels()
			if !slices.ContainsFunc(channels, isLarge) {
				response.Answers = append(response.Answers, s.answerTo(frame))
			} else if err := s.large(s.next(), frame, stream); err != nil {
				return err
			}
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

func isLarge(channel *tuskpointv1.Channel) bool { return channel.GetLarge() != nil }

func (s *scripted) answerTo(frame *tuskpointv1.Frame) *tuskpointv1.Answer {
	err := refusal(codes.NotFound, "CHECKPOINT_NOT_FOUND")
	if frame.GetSave() != nil {
		if err = s.save(s.next(), frame.GetSave()); err == nil {
			return savedAnswer(frame)
		}
	}
	return &tuskpointv1.Answer{
		Id: frame.GetId(), Last: true, Result: &tuskpointv1.Answer_Error{Error: callError(err)},
	}
}

func savedAnswer(frame *tuskpointv1.Frame) *tuskpointv1.Answer {
	saved := &tuskpointv1.SaveCheckpointResponse{
		Ref: frame.GetSave().GetCheckpoint().GetRef(), Durability: tuskpoint.Journaled,
	}
	return &tuskpointv1.Answer{
		Id: frame.GetId(), Last: true, Result: &tuskpointv1.Answer_Saved{Saved: saved},
	}
}

// callError returns a status in the form of an answer on a stream.
func callError(err error) *tuskpointv1.CallError {
	refused := status.Convert(err)
	answer := &tuskpointv1.CallError{Code: int32(refused.Code()), Message: refused.Message()}
	for _, detail := range refused.Details() {
		switch typed := detail.(type) {
		case *errdetails.ErrorInfo:
			answer.Reason = tuskpointv1.ErrorReason(
				tuskpointv1.ErrorReason_value["ERROR_REASON_"+typed.GetReason()])
		case *errdetails.RetryInfo:
			answer.RetryAfter = typed.GetRetryDelay()
		case *errdetails.PreconditionFailure:
			for _, one := range typed.GetViolations() {
				answer.FieldViolations = append(answer.FieldViolations,
					&tuskpointv1.FieldViolation{Field: one.GetSubject()})
			}
		}
	}
	return answer
}

func (s *scripted) ForkThread(
	_ context.Context, request *tuskpointv1.ForkThreadRequest,
) (*tuskpointv1.ForkThreadResponse, error) {
	return &tuskpointv1.ForkThreadResponse{}, s.fork(s.next(), request)
}

func (s *scripted) ReplayThread(
	request *tuskpointv1.ReplayThreadRequest, stream tuskpointv1.HistoryService_ReplayThreadServer,
) error {
	return s.replay(s.next(), request, func(frame *tuskpointv1.ReplayThreadResponse) { stream.Send(frame) })
}

func (s *scripted) WatchThread(
	request *tuskpointv1.WatchThreadRequest, stream tuskpointv1.HistoryService_WatchThreadServer,
) error {
	return s.watch(s.next(), request, func(frame *tuskpointv1.WatchThreadResponse) { stream.Send(frame) })
}

func (s *scripted) AdoptHandoff(
	request *tuskpointv1.AdoptHandoffRequest, stream tuskpointv1.HandoffService_AdoptHandoffServer,
) error {
	return s.adopt(s.next(), request, func(frame *tuskpointv1.AdoptHandoffResponse) { stream.Send(frame) })
}

func (s *scripted) GetServerInfo(
	ctx context.Context, _ *tuskpointv1.GetServerInfoRequest,
) (*tuskpointv1.GetServerInfoResponse, error) {
	return &tuskpointv1.GetServerInfoResponse{}, s.info(s.next(), ctx)
}

func (s *scripted) Flush(ctx context.Context, _ *tuskpointv1.FlushRequest) (*tuskpointv1.FlushResponse, error) {
	return &tuskpointv1.FlushResponse{}, s.flush(s.next(), ctx)
}

// serve runs a scripted server and returns a client of it.
func serve(t *testing.T, script *scripted, options ...tuskpoint.Option) *tuskpoint.Client {
	t.Helper()
	target, _ := start(t, script, "127.0.0.1:0")
	return dialTo(t, target, options...)
}

// start runs a scripted server at an address; it returns the server's target and a function that
// stops it.
func start(
	t *testing.T, script *scripted, address string, options ...grpc.ServerOption,
) (string, func()) {
	t.Helper()
	listener := must(net.Listen("tcp", address))(t)
	server := grpc.NewServer(options...)
	tuskpointv1.RegisterCheckpointServiceServer(server, script)
	tuskpointv1.RegisterThreadServiceServer(server, script)
	tuskpointv1.RegisterHistoryServiceServer(server, script)
	tuskpointv1.RegisterHandoffServiceServer(server, script)
	tuskpointv1.RegisterAdminServiceServer(server, script)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String(), server.Stop
}

// refusal returns an error status of the service.
func refusal(code codes.Code, reason string, more ...*errdetails.RetryInfo) error {
	refused, err := status.New(code, "refused with "+reason).WithDetails(
		&errdetails.ErrorInfo{Reason: reason, Domain: "tuskpoint.dev"})
	for _, one := range more {
		if err == nil {
			refused, err = refused.WithDetails(one)
		}
	}
	if err != nil {
		panic(err)
	}
	return refused.Err()
}

func soon() *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)}
}

func missing(channel string) error {
	refused, err := status.New(codes.FailedPrecondition, "values are missing").WithDetails(
		&errdetails.ErrorInfo{Reason: "VALUES_MISSING", Domain: "tuskpoint.dev"},
		&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{
			{Type: "VALUE", Subject: channel},
		}})
	if err != nil {
		panic(err)
	}
	return refused.Err()
}
