package exchange

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint/internal/wire"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

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
			call(t, exchange, saving("c"), nil, false) // the call was not sent yet
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

func TestCallsContinueWithACredentialThatWasReplaced(t *testing.T) {
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
