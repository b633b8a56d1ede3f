package tuskpoint_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

func TestWhatIsSafeIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		err   error
		calls int
	}{
		"unavailable":               {status.Error(codes.Unavailable, "away"), 3},
		"draining":                  {refusal(codes.Unavailable, "DRAINING", soon()), 3},
		"dropped":                   {status.Error(codes.Canceled, "dropped"), 3},
		"gone while sending":        {status.Error(codes.Internal, "stream terminated"), 3},
		"exhausted, with a time":    {refusal(codes.ResourceExhausted, "BACKLOG_FULL", soon()), 3},
		"exhausted, without a time": {refusal(codes.ResourceExhausted, "LIMIT_EXCEEDED"), 1},
		"a conflict":                {refusal(codes.Aborted, "REQUEST_ID_REUSED"), 1},
		"a deadline":                {refusal(codes.DeadlineExceeded, "DEADLINE_EXCEEDED"), 1},
		"a defect of the server":    {refusal(codes.Internal, "INTERNAL_ERROR"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			script := &scripted{info: func(call int, _ context.Context) error {
				if call < 3 {
					return one.err
				}
				return nil
			}}
			_, err := serve(t, script).Info(within(t))
			want(t, "it succeeded", err == nil, one.calls == 3)
			want(t, "the number of calls", script.calls, one.calls)
		})
	}
}

func TestACallContinuesWithTheTokenThatReplacedItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Error(err)
		}
	}
	refused := refusal(codes.Unauthenticated, "CREDENTIAL_INVALID")
	script := &scripted{}
	script.info = func(_ int, ctx context.Context) error {
		shown := metadata.ValueFromIncomingContext(ctx, "authorization")[0]
		write("new")
		if shown != "Bearer new" {
			return refused
		}
		return nil
	}
	script.watch = func(
		call int, _ *tuskpointv1.WatchThreadRequest, send func(*tuskpointv1.WatchThreadResponse),
	) error {
		write([]string{"newer", "newest", "newest"}[call-1])
		send(&tuskpointv1.WatchThreadResponse{Frame: &tuskpointv1.WatchThreadResponse_Event{
			Event: &tuskpointv1.ThreadEvent{Kind: tuskpoint.LabelSet, Cursor: []byte{byte(call)}},
		}})
		return refused
	}
	write("old")
	client := serve(t, script, tuskpoint.WithTokenFile(path))
	must(client.Info(within(t)))(t)
	want(t, "the number of calls", script.calls, 2)

	script.calls = 0
	var last error
	for _, err := range client.Watch(within(t), "t", nil) {
		last = err
	}
	// The third connection uses the newest token, and is refused for good.
	wantError(t, last, tuskpoint.ErrUnauthenticated, "CREDENTIAL_INVALID")
	want(t, "the number of watches", script.calls, 3)
}

func TestWhatMustNotBeDoneTwiceIsSentAgainOnlyIfNothingWasStored(t *testing.T) {
	for name, one := range map[string]struct {
		err   error
		calls int
	}{
		"perhaps stored": {status.Error(codes.Unavailable, "away"), 1},
		"not stored":     {refusal(codes.Unavailable, "JOURNAL_UNAVAILABLE", soon()), 2},
	} {
		t.Run(name, func(t *testing.T) {
			script := &scripted{save: func(call int, _ *tuskpointv1.SaveCheckpointRequest) error {
				if call == 1 {
					return one.err
				}
				return nil
			}}
			// A save without an ID, which the server then chooses.
			_, err := serve(t, script).Checkpoints().SaveCheckpoint(within(t),
				&tuskpointv1.SaveCheckpointRequest{Checkpoint: &tuskpointv1.Checkpoint{}})
			want(t, "it succeeded", err == nil, one.calls == 2)
			want(t, "the number of calls", script.calls, one.calls)
		})
	}
}

func TestASaveThatIsRefusedForNowIsSentAgain(t *testing.T) {
	var ids []string
	script := &scripted{save: func(call int, request *tuskpointv1.SaveCheckpointRequest) error {
		ids = append(ids, request.GetCheckpoint().GetRef().GetCheckpointId())
		if call < 3 {
			return refusal(codes.ResourceExhausted, "BACKLOG_FULL", soon())
		}
		return nil
	}}
	save(t, serve(t, script), "t", map[string]any{"a": 1})
	want(t, "the number of saves", len(ids), 3)
	want(t, "the ID of the repetition", ids[2], ids[0])
}

func TestErrorsOfSavesAndLoadsAreWhatCallsFailWith(t *testing.T) {
	script := &scripted{save: func(int, *tuskpointv1.SaveCheckpointRequest) error {
		return refusal(codes.Aborted, "HEAD_MOVED")
	}}
	client := serve(t, script)
	_, err := client.Save(within(t), "t", map[string]any{"a": 1}, &tuskpoint.SaveOptions{First: true})
	failure := wantError(t, err, tuskpoint.ErrConflict, "HEAD_MOVED")
	want(t, "the status", status.Code(err), codes.Aborted)
	want(t, "the number of details", len(failure.GRPCStatus().Details()), 1)
	_, err = client.Load(within(t), "t", "", nil)
	wantError(t, err, tuskpoint.ErrNotFound, "CHECKPOINT_NOT_FOUND")
}

func TestACloseEndsCallsUnderWay(t *testing.T) {
	arrived := make(chan struct{})
	script := &scripted{save: func(int, *tuskpointv1.SaveCheckpointRequest) error {
		close(arrived)
		select {} // the server never answers
	}}
	client := serve(t, script)
	go func() {
		<-arrived
		client.Close()
	}()
	root := &tuskpoint.SaveOptions{Root: true}
	_, err := client.Save(within(t), "t", map[string]any{"a": 1}, root)
	wantError(t, err, tuskpoint.ErrClosed, "")
	_, err = client.Save(within(t), "t", map[string]any{"a": 1}, root)
	wantError(t, err, tuskpoint.ErrClosed, "")
}

func TestTheTraceOfACallerGoesAlong(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	seen := make(chan string, 1)
	script := &scripted{large: func(
		_ int, begin *tuskpointv1.Frame, _ tuskpointv1.CheckpointService_ExchangeServer,
	) error {
		seen <- begin.GetTraceparent()
		return status.Error(codes.PermissionDenied, "enough")
	}}
	ctx := metadata.AppendToOutgoingContext(within(t), "traceparent", trace)
	_, err := serve(t, script).Save(ctx, "t", map[string]any{"a": strings.Repeat("x", 2<<20)}, nil)
	wantError(t, err, tuskpoint.ErrPermissionDenied, "")
	want(t, "the trace", <-seen, trace)
}

func TestARepeatedMutationHasTheSameRequestID(t *testing.T) {
	var ids []string
	script := &scripted{fork: func(call int, request *tuskpointv1.ForkThreadRequest) error {
		ids = append(ids, request.GetRequestId())
		if call == 1 {
			return status.Error(codes.Unavailable, "the answer is lost")
		}
		return nil
	}}
	client := serve(t, script)
	must(client.Fork(within(t), "t", "", "f", nil))(t)
	must(client.Fork(within(t), "t", "", "g", nil))(t)
	want(t, "the number of calls", len(ids), 3)
	want(t, "there is an ID", len(ids[0]) > 20, true)
	want(t, "the ID of the repetition", ids[1], ids[0])
	want(t, "another call has the same", ids[2] == ids[0], false)
}

func TestContextsWithoutDeadlineGetOne(t *testing.T) {
	var deadlines []time.Time
	note := func(_ int, ctx context.Context) error {
		deadline, has := ctx.Deadline()
		want(t, "there is a deadline", has, true)
		deadlines = append(deadlines, deadline)
		return nil
	}
	client := serve(t, &scripted{info: note, flush: note})
	must(client.Info(context.Background()))(t)
	must(client.Flush(context.Background()))(t)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(client.Flush(short))(t)
	want(t, "a flush may take longer", deadlines[1].After(deadlines[0]), true)
	want(t, "a context's own deadline counts", deadlines[2].Before(deadlines[0]), true)
}

func TestACallEndsWithItsContext(t *testing.T) {
	arrived, left := make(chan struct{}), make(chan struct{})
	script := &scripted{info: func(_ int, ctx context.Context) error {
		close(arrived)
		<-ctx.Done()
		close(left)
		return ctx.Err()
	}}
	client := serve(t, script)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := client.Info(ctx)
	want(t, "it was cancelled", errors.Is(err, context.Canceled), true)
	<-left
	want(t, "the number of calls", script.calls, 1)
}

func TestAServerThatIsNotThereIsUnavailable(t *testing.T) {
	t.Parallel()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	client := dialTo(t, listener.Addr().String(), tuskpoint.WithTimeout(300*time.Millisecond))
	_, err := client.Info(within(t))
	wantError(t, err, tuskpoint.ErrUnavailable, "")
	want(t, "the message says where", strings.Contains(err.Error(), client.Target()), true)
	for _, err := range client.Watch(within(t), "t", nil) {
		wantError(t, err, tuskpoint.ErrUnavailable, "")
	}
}

func TestContentThatTheServiceLacksIsSentInline(t *testing.T) {
	var inline [][]string
	script := &scripted{}
	script.save = func(call int, request *tuskpointv1.SaveCheckpointRequest) error {
		var names []string
		for _, channel := range request.GetCheckpoint().GetState().GetChannels() {
			want(t, "the digest is sent", len(channel.GetDigest()), 32)
			if channel.GetValue() != nil {
				names = append(names, channel.GetName())
			}
		}
		inline = append(inline, names)
		if call == 2 || call == 3 {
			return missing("b")
		}
		return nil
	}
	client := serve(t, script)
	state := map[string]any{"a": 1, "b": 2, "c": 3}
	save(t, client, "t", state)
	state["c"] = 4
	save(t, client, "t", state)
	var got []string
	for _, names := range inline {
		got = append(got, strings.Join(names, ""))
	}
	want(t, "what was sent inline", strings.Join(got, " "), "abc c bc abc")
}

func TestALargeSaveIsSentAgainWhole(t *testing.T) {
	text := strings.Repeat("x", 3<<20)
	script := &scripted{}
	script.large = func(
		call int, begin *tuskpointv1.Frame, stream tuskpointv1.CheckpointService_ExchangeServer,
	) error {
		if call == 1 {
			return status.Error(codes.Unavailable, "killed")
		}
		received := 0
		for received < len(text)+2 {
			message, err := stream.Recv()
			if err != nil {
				return err
			}
			for _, frame := range message.GetFrames() {
				want(t, "the offset", frame.GetChunk().GetOffset(), uint64(received))
				received += len(frame.GetChunk().GetData())
			}
		}
		return stream.Send(&tuskpointv1.ExchangeResponse{
			Answers: []*tuskpointv1.Answer{savedAnswer(begin)},
		})
	}
	client := serve(t, script)
	want(t, "it has an ID", save(t, client, "t", map[string]any{"text": text}) != "", true)
	want(t, "the number of calls", script.calls, 2)

	// A durability below the requested one is not a success.
	_, err := client.Save(within(t), "t", map[string]any{"text": text + "y"},
		&tuskpoint.SaveOptions{Durability: tuskpoint.Certified, Root: true})
	wantError(t, err, tuskpoint.ErrServer, "")
}
