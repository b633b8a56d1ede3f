package exchange

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

func TestWhatWaitsGoesTogetherInItsOrder(t *testing.T) {
	server, exchange := begin(t, nil)
	a := save(t, exchange, "a")
	stream := server.next(t)
	stream.wantFrames(t, "a")
	b := save(t, exchange, "b")
	stream.wantFrames(t, "b")
	// At most two messages may be unanswered.
	c, d, e, f := save(t, exchange, "c"), save(t, exchange, "d"), load(t, exchange, "e"), save(t, exchange, "f")
	stream.answer(t, saved(1))
	a.wantSaved(t, 1)
	stream.wantFrames(t, "c", "d", "e", "f")
	// Answers arrive in any order.
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
	stream.wantFrames(t, "c") // a journaled save no longer counts as an unanswered message
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
		t.Errorf("the timeout that the server has is %s", timeout)
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
	// A goroutine that has finished stays visible for a moment while it exits.
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
	exchange.Close() // no operation
}
