package exchange

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint/internal/retry"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

var errClosed = errors.New("closed")

// server accepts exchange streams and hands them to the test.
type server struct {
	tuskpointv1.UnimplementedCheckpointServiceServer
	opened chan *session
}

// session is one stream from the server's side.
type session struct {
	stream   tuskpointv1.CheckpointService_ExchangeServer
	received chan *tuskpointv1.ExchangeRequest
	ending   chan error
}

func (s *server) Exchange(stream tuskpointv1.CheckpointService_ExchangeServer) error {
	made := &session{stream, make(chan *tuskpointv1.ExchangeRequest, 100), make(chan error, 1)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for {
			message, err := stream.Recv()
			if err != nil {
				close(made.received)
				return
			}
			made.received <- message
		}
	}()
	s.opened <- made
	select {
	case err := <-made.ending:
		return err
	case <-read:
		return nil // the client has gone
	}
}

// next returns the next stream that a client opens.
func (s *server) next(t *testing.T) *session {
	t.Helper()
	return receive(t, s.opened)
}

// message returns the next message of the client.
func (s *session) message(t *testing.T) *tuskpointv1.ExchangeRequest {
	t.Helper()
	return receive(t, s.received)
}

// wantFrames fails the test unless the next message has exactly these frames; it returns their
// numbers.
func (s *session) wantFrames(t *testing.T, names ...string) []uint64 {
	t.Helper()
	var got []string
	var ids []uint64
	for _, frame := range s.message(t).GetFrames() {
		got, ids = append(got, nameOf(frame)), append(ids, frame.GetId())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Fatalf("the message has the frames %v, not %v", got, names)
	}
	return ids
}

func (s *session) answer(t *testing.T, answers ...*tuskpointv1.Answer) {
	t.Helper()
	s.send(t, &tuskpointv1.ExchangeResponse{Answers: answers})
}

func (s *session) send(t *testing.T, response *tuskpointv1.ExchangeResponse) {
	t.Helper()
	if err := s.stream.Send(response); err != nil {
		t.Fatal(err)
	}
}

func (s *session) end(err error) { s.ending <- err }

func nameOf(frame *tuskpointv1.Frame) string {
	switch call := frame.GetCall().(type) {
	case *tuskpointv1.Frame_Save:
		return call.Save.GetCheckpoint().GetRef().GetCheckpointId()
	case *tuskpointv1.Frame_Get:
		return call.Get.GetRef().GetCheckpointId()
	case *tuskpointv1.Frame_Chunk:
		return "chunk"
	}
	return "?"
}

func saved(id uint64) *tuskpointv1.Answer {
	return &tuskpointv1.Answer{Id: id, Last: true, Result: &tuskpointv1.Answer_Saved{
		Saved: &tuskpointv1.SaveCheckpointResponse{Seq: id},
	}}
}

func receive[T any](t *testing.T, from chan T) T {
	t.Helper()
	select {
	case one, open := <-from:
		if !open {
			t.Fatal("the stream has ended")
		}
		return one
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// begin runs a server and returns it with an exchange. Failures of the exchange are the plain
// statuses.
func begin(t *testing.T, change func(*Config)) (*server, *Exchange) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	made := &server{opened: make(chan *session, 100)}
	running := grpc.NewServer()
	tuskpointv1.RegisterCheckpointServiceServer(running, made)
	go running.Serve(listener)
	t.Cleanup(running.Stop)
	connection, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	stub := tuskpointv1.NewCheckpointServiceClient(connection)
	config := Config{
		Open: func(ctx context.Context) (tuskpointv1.CheckpointService_ExchangeClient, error) {
			return stub.Exchange(ctx)
		},
		Failure: func(err error) retry.Failure {
			broken := status.Convert(err)
			reason := ""
			if broken.Message() == "DRAINING" {
				reason = "DRAINING"
			}
			return retry.Failure{Status: broken.Code(), Reason: reason}
		},
		Credential:      func() string { return "" },
		Closed:          errClosed,
		MaxMessageBytes: 8 << 20,
	}
	if change != nil {
		change(&config)
	}
	exchange := New(config)
	t.Cleanup(exchange.Close)
	return made, exchange
}

// noting is a context that records when a call starts to wait for its answer.
type noting struct {
	context.Context
	waits chan struct{}
}

func (n noting) Done() <-chan struct{} {
	select {
	case n.waits <- struct{}{}:
	default:
	}
	return n.Context.Done()
}

// running is a call in progress.
type running struct {
	done   chan outcome
	cancel context.CancelFunc
}

func (r running) wantSaved(t *testing.T, seq uint64) {
	t.Helper()
	result := receive(t, r.done)
	if result.err != nil || result.answer.GetSaved().GetSeq() != seq {
		t.Fatalf("the answer is %v, %v, not %d", result.answer, result.err, seq)
	}
}

func (r running) wantError(t *testing.T, code codes.Code) {
	t.Helper()
	if result := receive(t, r.done); status.Code(result.err) != code {
		t.Fatalf("the outcome is %v, %v, not %s", result.answer, result.err, code)
	}
}

// call starts a call and returns when the call waits.
func call(
	t *testing.T, exchange *Exchange, frame *tuskpointv1.Frame, large []*tuskpointv1.Value, repeatable bool,
) running {
	t.Helper()
	made, err := NewCall(frame, large, repeatable)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	begun := running{make(chan outcome, 1), cancel}
	waits := make(chan struct{}, 1)
	go func() {
		answer, err := exchange.Do(noting{ctx, waits}, made, time.Now().Add(time.Minute))
		begun.done <- outcome{answer, err}
	}()
	select {
	case <-waits:
	case result := <-begun.done:
		begun.done <- result
	}
	return begun
}

func save(t *testing.T, exchange *Exchange, name string) running {
	t.Helper()
	return call(t, exchange, saving(name), nil, true)
}

func load(t *testing.T, exchange *Exchange, name string) running {
	t.Helper()
	return call(t, exchange, &tuskpointv1.Frame{Call: &tuskpointv1.Frame_Get{
		Get: &tuskpointv1.GetCheckpointRequest{Ref: &tuskpointv1.CheckpointRef{CheckpointId: name}},
	}}, nil, true)
}

func saving(name string) *tuskpointv1.Frame {
	return &tuskpointv1.Frame{Call: &tuskpointv1.Frame_Save{Save: &tuskpointv1.SaveCheckpointRequest{
		Checkpoint: &tuskpointv1.Checkpoint{Ref: &tuskpointv1.CheckpointRef{CheckpointId: name}},
	}}}
}
