package exchange

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint/internal/retry"
	"tuskpoint.dev/go/tuskpoint/internal/wire"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

var errClosed = errors.New("closed")

// server accepts exchange streams and hands them to the test.
type server struct {
	tuskpointv1.UnimplementedCheckpointServiceServer
	opened chan *session
}

// session is one stream, as the server sees it.
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

// next returns the next stream that is opened.
func (s *server) next(t *testing.T) *session {
	t.Helper()
	return receive(t, s.opened)
}

// message returns what the client sends next.
func (s *session) message(t *testing.T) *tuskpointv1.ExchangeRequest {
	t.Helper()
	return receive(t, s.received)
}

// wantFrames fails the test unless the next message has just these frames; it returns their numbers.
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

// begin runs a server and returns it with an exchange on it. Its failures are the plain statuses.
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
			said := status.Convert(err)
			reason := ""
			if said.Message() == "DRAINING" {
				reason = "DRAINING"
			}
			return retry.Failure{Status: said.Code(), Reason: reason}
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

// noting is a context that says when a call begins to wait for its answer.
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

// running is a call under way.
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

// call begins a call and returns when it waits.
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

func TestWhatWaitsGoesTogetherInItsOrder(t *testing.T) {
	server, exchange := begin(t, nil)
	a := save(t, exchange, "a")
	stream := server.next(t)
	stream.wantFrames(t, "a")
	b := save(t, exchange, "b")
	stream.wantFrames(t, "b")
	// Two messages without an answer are the most.
	c, d, e, f := save(t, exchange, "c"), save(t, exchange, "d"), load(t, exchange, "e"), save(t, exchange, "f")
	stream.answer(t, saved(1))
	a.wantSaved(t, 1)
	stream.wantFrames(t, "c", "d", "e", "f")
	// Answers come in any order.
	stream.answer(t, saved(6), saved(3))
	stream.answer(t, saved(2))
	stream.answer(t, saved(5), saved(4))
	for seq, one := range map[uint64]running{2: b, 3: c, 4: d, 5: e, 6: f} {
		one.wantSaved(t, seq)
	}
}

func TestSlowLoadsHoldUpNoSave(t *testing.T) {
	server, exchange := begin(t, nil)
	load(t, exchange, "a")
	stream := server.next(t)
	stream.wantFrames(t, "a")
	for _, name := range []string{"b", "c", "d"} {
		load(t, exchange, name)
		stream.wantFrames(t, name)
	}
	save(t, exchange, "e")
	stream.wantFrames(t, "e")
}

func TestAnErrorInAnAnswerConcernsItsCallOnly(t *testing.T) {
	server, exchange := begin(t, nil)
	a := save(t, exchange, "a")
	stream := server.next(t)
	stream.wantFrames(t, "a")
	b := save(t, exchange, "b")
	stream.wantFrames(t, "b")
	stream.answer(t, &tuskpointv1.Answer{Id: 1, Last: true, Result: &tuskpointv1.Answer_Error{
		Error: &tuskpointv1.CallError{Code: int32(codes.Aborted)},
	}})
	if result := receive(t, a.done); result.answer.GetError().GetCode() != int32(codes.Aborted) {
		t.Errorf("the outcome is %v, %v", result.answer, result.err)
	}
	stream.answer(t, saved(2))
	b.wantSaved(t, 2)
}

func TestASaveIsDoneWithItsLastAnswer(t *testing.T) {
	server, exchange := begin(t, nil)
	a := save(t, exchange, "a")
	stream := server.next(t)
	stream.wantFrames(t, "a")
	save(t, exchange, "b")
	stream.wantFrames(t, "b")
	c := save(t, exchange, "c")
	journaled := saved(1)
	journaled.Last = false
	stream.answer(t, journaled)
	stream.wantFrames(t, "c") // what is journaled is no message without an answer any more
	stream.answer(t, saved(3))
	c.wantSaved(t, 3)
	select {
	case result := <-a.done:
		t.Fatalf("it ended with %v, %v", result.answer, result.err)
	default:
	}
	stream.answer(t, saved(1))
	a.wantSaved(t, 1)
}

func TestAfterABreakWhatHasNoAnswerIsSentFirst(t *testing.T) {
	server, exchange := begin(t, nil)
	a := save(t, exchange, "a")
	first := server.next(t)
	hello := first.message(t).GetHello()
	b := save(t, exchange, "b")
	first.wantFrames(t, "b")
	c, d := load(t, exchange, "c"), save(t, exchange, "d")
	first.answer(t, saved(1))
	a.wantSaved(t, 1)
	first.wantFrames(t, "c", "d")
	e := save(t, exchange, "e")
	first.end(status.Error(codes.Unavailable, "killed"))

	second := server.next(t)
	message := second.message(t)
	if again := message.GetHello(); !bytes.Equal(again.GetSession(), hello.GetSession()) ||
		len(hello.GetSession()) != 16 || hello.GetAttempt() != 1 || again.GetAttempt() != 2 {
		t.Errorf("after %v comes %v", hello, again)
	}
	var names []string
	for place, frame := range message.GetFrames() {
		names = append(names, nameOf(frame))
		if frame.GetId() != uint64(place+1) {
			t.Errorf("frame %d has the number %d", place, frame.GetId())
		}
	}
	if strings.Join(names, " ") != "b c d e" {
		t.Errorf("what comes first is %v", names)
	}
	second.answer(t, saved(1), saved(2), saved(3), saved(4))
	for seq, one := range map[uint64]running{1: b, 2: c, 3: d, 4: e} {
		one.wantSaved(t, seq)
	}
}

func TestAfterABreakWhatHasAnAnswerIsNotSentAgain(t *testing.T) {
	server, exchange := begin(t, nil)
	a := save(t, exchange, "a")
	stream := server.next(t)
	stream.wantFrames(t, "a")
	stream.answer(t, saved(1))
	a.wantSaved(t, 1)
	stream.end(status.Error(codes.Unavailable, "killed"))
	b := save(t, exchange, "b")
	stream = server.next(t)
	stream.wantFrames(t, "b")
	stream.answer(t, saved(1))
	b.wantSaved(t, 1)
}

func TestWhatMustNotBeDoneTwiceFailsIfItsAnswerIsLost(t *testing.T) {
	for reason, expected := range map[string]string{"killed": "b c", "DRAINING": "a b c"} {
		t.Run(reason, func(t *testing.T) {
			server, exchange := begin(t, nil)
			a := call(t, exchange, saving("a"), nil, false)
			stream := server.next(t)
			stream.wantFrames(t, "a")
			save(t, exchange, "b")
			stream.wantFrames(t, "b")
			call(t, exchange, saving("c"), nil, false) // it was not sent yet
			stream.end(status.Error(codes.Unavailable, reason))
			server.next(t).wantFrames(t, strings.Fields(expected)...)
			if reason == "killed" {
				a.wantError(t, codes.Unavailable)
			}
		})
	}
}

func TestADrainingServerIsSentNothingMore(t *testing.T) {
	server, exchange := begin(t, nil)
	a := save(t, exchange, "a")
	stream := server.next(t)
	stream.wantFrames(t, "a")
	stream.send(t, &tuskpointv1.ExchangeResponse{Answers: []*tuskpointv1.Answer{saved(1)}, Draining: true})
	a.wantSaved(t, 1)
	b := save(t, exchange, "b")
	stream.end(status.Error(codes.Unavailable, "DRAINING"))
	next := server.next(t)
	next.wantFrames(t, "b")
	next.answer(t, saved(1))
	b.wantSaved(t, 1)
	if message, open := <-stream.received; open {
		t.Errorf("the draining server was sent %v", message)
	}
}

func TestAnErrorThatWaitingDoesNotHelpFailsWhatWasSent(t *testing.T) {
	server, exchange := begin(t, nil)
	a := save(t, exchange, "a")
	stream := server.next(t)
	stream.wantFrames(t, "a")
	b := save(t, exchange, "b")
	stream.wantFrames(t, "b")
	c := save(t, exchange, "c")
	stream.end(status.Error(codes.PermissionDenied, "no"))
	a.wantError(t, codes.PermissionDenied)
	b.wantError(t, codes.PermissionDenied)
	stream = server.next(t)
	stream.wantFrames(t, "c")
	stream.answer(t, saved(1))
	c.wantSaved(t, 1)
}

func TestARefusedStreamIsOpenedAgainWithACredentialThatWasReplaced(t *testing.T) {
	var credential atomic.Value
	credential.Store("old")
	server, exchange := begin(t, func(config *Config) {
		config.Credential = func() string { return credential.Load().(string) }
	})
	a := save(t, exchange, "a")
	stream := server.next(t)
	stream.wantFrames(t, "a")
	credential.Store("new")
	stream.end(status.Error(codes.Unauthenticated, "expired"))
	stream = server.next(t)
	stream.wantFrames(t, "a")
	stream.end(status.Error(codes.Unauthenticated, "expired"))
	a.wantError(t, codes.Unauthenticated)
}

func TestCallsGoOnWithACredentialThatWasReplaced(t *testing.T) {
	var credential atomic.Value
	credential.Store("old")
	server, exchange := begin(t, func(config *Config) {
		config.Credential = func() string { return credential.Load().(string) }
	})
	a := save(t, exchange, "a")
	old := server.next(t)
	old.wantFrames(t, "a")
	b := save(t, exchange, "b")
	old.wantFrames(t, "b")
	c := load(t, exchange, "c")
	journaled := saved(2)
	journaled.Last = false
	old.answer(t, journaled)
	old.wantFrames(t, "c")
	credential.Store("new")
	d := save(t, exchange, "d") // waits for the answer to a
	old.answer(t, saved(1))
	a.wantSaved(t, 1)
	stream := server.next(t)
	stream.wantFrames(t, "b", "c", "d")
	stream.answer(t, saved(1), saved(2), saved(3))
	for seq, one := range map[uint64]running{1: b, 2: c, 3: d} {
		one.wantSaved(t, seq)
	}
	if message, open := <-old.received; open {
		t.Errorf("the old stream was sent %v", message)
	}
}

func TestACallThatIsCancelledIsTakenBackOrItsAnswerDropped(t *testing.T) {
	server, exchange := begin(t, nil)
	a := save(t, exchange, "a")
	stream := server.next(t)
	stream.wantFrames(t, "a")
	b := save(t, exchange, "b")
	stream.wantFrames(t, "b")
	c, d := save(t, exchange, "c"), save(t, exchange, "d")
	for _, one := range []running{a, c} {
		one.cancel()
		one.wantError(t, codes.Canceled)
	}
	stream.answer(t, saved(1))
	stream.wantFrames(t, "d")
	b.cancel()
	b.wantError(t, codes.Canceled)
	stream.end(status.Error(codes.Unavailable, "killed"))
	stream = server.next(t)
	stream.wantFrames(t, "d")
	stream.answer(t, saved(1))
	d.wantSaved(t, 1)
}

func TestDeadlinesAreOfCalls(t *testing.T) {
	server, exchange := begin(t, nil)
	save(t, exchange, "b")
	stream := server.next(t)
	if frame := stream.message(t).GetFrames()[0]; frame.GetTimeout() != nil {
		t.Errorf("a call without deadline is sent as %v", frame)
	}
	made, err := NewCall(saving("a"), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = exchange.Do(ctx, made, time.Now().Add(time.Minute))
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the error is %v", err)
	}
	timeout := stream.message(t).GetFrames()[0].GetTimeout().AsDuration()
	if timeout <= 0 || timeout > 100*time.Millisecond {
		t.Errorf("the server is told that it has %s", timeout)
	}
	if _, err = exchange.Do(ctx, made, time.Now().Add(time.Minute)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the error of a call that begins too late is %v", err)
	}
}

func TestLargeCallsHaveAStreamOfTheirOwn(t *testing.T) {
	server, exchange := begin(t, nil)
	text := bytes.Repeat([]byte("x"), 5<<19)
	values := []*tuskpointv1.Value{{Type: "json", Data: text}}
	large := call(t, exchange, saving("large"), values, true)
	stream := server.next(t)
	hello := stream.message(t).GetHello()
	for range 3 {
		stream.wantFrames(t, "chunk")
	}
	next := save(t, exchange, strings.Repeat("y", largeFrame))
	if id := stream.message(t).GetFrames()[0].GetId(); id != 2 {
		t.Errorf("the frame after the chunks of frame 1 has the number %d", id)
	}
	small := save(t, exchange, "small")
	other := server.next(t)
	if again := other.message(t).GetHello(); bytes.Equal(again.GetSession(), hello.GetSession()) {
		t.Error("both streams have one session")
	}
	other.answer(t, saved(1))
	small.wantSaved(t, 1)

	stream.end(status.Error(codes.Unavailable, "killed"))
	stream = server.next(t)
	if ids := stream.wantFrames(t, "large"); ids[0] != 1 {
		t.Errorf("it is numbered %v", ids)
	}
	received := 0
	for received < len(text) {
		frame := stream.message(t).GetFrames()[0]
		if frame.GetId() != 1 || frame.GetChunk().GetOffset() != uint64(received) {
			t.Fatalf("at %d comes a chunk of %d at %d", received, frame.GetId(), frame.GetChunk().GetOffset())
		}
		received += len(frame.GetChunk().GetData())
	}
	stream.message(t)
	stream.answer(t, saved(2), saved(1))
	large.wantSaved(t, 1)
	next.wantSaved(t, 2)
}

func TestAMessageHasNoMoreThanItMay(t *testing.T) {
	server, exchange := begin(t, func(config *Config) { config.MaxMessageBytes = 1000 })
	save(t, exchange, "a")
	stream := server.next(t)
	stream.wantFrames(t, "a")
	save(t, exchange, "b")
	stream.wantFrames(t, "b")
	c, d := strings.Repeat("c", 600), strings.Repeat("d", 600)
	save(t, exchange, c)
	save(t, exchange, d)
	stream.answer(t, saved(1), saved(2))
	stream.wantFrames(t, c)
	stream.wantFrames(t, d)
	save(t, exchange, strings.Repeat("e", 1000)).wantError(t, codes.ResourceExhausted)
}

func TestAnAnswerToNothingBreaksTheStream(t *testing.T) {
	server, exchange := begin(t, nil)
	a := save(t, exchange, "a")
	stream := server.next(t)
	stream.wantFrames(t, "a")
	stream.answer(t, saved(7))
	var breach wire.Breach
	if result := receive(t, a.done); !errors.As(result.err, &breach) {
		t.Errorf("the outcome is %v, %v", result.answer, result.err)
	}
}

func TestACallGivesUpInTime(t *testing.T) {
	_, exchange := begin(t, func(config *Config) {
		config.Open = func(context.Context) (tuskpointv1.CheckpointService_ExchangeClient, error) {
			return nil, status.Error(codes.Unavailable, "nobody is there")
		}
	})
	made, err := NewCall(saving("a"), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	_, err = exchange.Do(t.Context(), made, time.Now().Add(300*time.Millisecond))
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the error is %v", err)
	}
}

func TestNothingIsLeftOfAClosedExchange(t *testing.T) {
	server, exchange := begin(t, nil)
	a := save(t, exchange, "a")
	server.next(t).wantFrames(t, "a")
	large := save(t, exchange, strings.Repeat("y", largeFrame+1))
	server.next(t).message(t)
	exchange.Close()
	for _, one := range []running{a, large, save(t, exchange, "b")} {
		if result := receive(t, one.done); !errors.Is(result.err, errClosed) {
			t.Errorf("the outcome is %v, %v", result.answer, result.err)
		}
	}
	// A goroutine that has done everything is seen for a moment while it exits.
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if !bytes.Contains(stacks, []byte("exchange.(*lane)")) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a goroutine is left:\n%s", stacks)
		}
	}
	exchange.Close() // which does nothing
}
