package tuskpoint_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// scripted is a server that does what a test says. What a test does not set, it has not built.
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

// Exchange answers saves as save says and loads with CHECKPOINT_NOT_FOUND; large answers a save that
// has large values, once it has read their chunks.
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

// callError returns a status as an answer on a stream carries it.
func callError(err error) *tuskpointv1.CallError {
	told := status.Convert(err)
	answer := &tuskpointv1.CallError{Code: int32(told.Code()), Message: told.Message()}
	for _, detail := range told.Details() {
		switch said := detail.(type) {
		case *errdetails.ErrorInfo:
			answer.Reason = tuskpointv1.ErrorReason(
				tuskpointv1.ErrorReason_value["ERROR_REASON_"+said.GetReason()])
		case *errdetails.RetryInfo:
			answer.RetryAfter = said.GetRetryDelay()
		case *errdetails.PreconditionFailure:
			for _, one := range said.GetViolations() {
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
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := grpc.NewServer()
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
	return dialTo(t, listener.Addr().String(), options...)
}

// refusal returns a status as the service tells it.
func refusal(code codes.Code, reason string, more ...*errdetails.RetryInfo) error {
	told, err := status.New(code, "told by "+reason).WithDetails(
		&errdetails.ErrorInfo{Reason: reason, Domain: "tuskpoint.dev"})
	for _, one := range more {
		if err == nil {
			told, err = told.WithDetails(one)
		}
	}
	if err != nil {
		panic(err)
	}
	return told.Err()
}

func soon() *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)}
}

func TestWhatIsSafeIsSentAgain(t *testing.T) {
	for name, one := range map[string]struct {
		err   error
		calls int
	}{
		"unavailable":            {status.Error(codes.Unavailable, "away"), 3},
		"draining":               {refusal(codes.Unavailable, "DRAINING", soon()), 3},
		"dropped":                {status.Error(codes.Canceled, "dropped"), 3},
		"gone while sending":     {status.Error(codes.Internal, "stream terminated"), 3},
		"exhausted, told when":   {refusal(codes.ResourceExhausted, "BACKLOG_FULL", soon()), 3},
		"exhausted, not told":    {refusal(codes.ResourceExhausted, "LIMIT_EXCEEDED"), 1},
		"a conflict":             {refusal(codes.Aborted, "REQUEST_ID_REUSED"), 1},
		"a deadline":             {refusal(codes.DeadlineExceeded, "DEADLINE_EXCEEDED"), 1},
		"a defect of the server": {refusal(codes.Internal, "INTERNAL_ERROR"), 1},
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

func TestACallGoesOnWithTheTokenThatReplacedItsOwn(t *testing.T) {
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
	// The third connection shows the newest token, and is refused for good.
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
			// A save whose ID is left to the server.
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

func checkpointFrame(id, namespace string) *tuskpointv1.ReplayThreadResponse {
	return &tuskpointv1.ReplayThreadResponse{Frame: &tuskpointv1.ReplayThreadResponse_Checkpoint{
		Checkpoint: &tuskpointv1.Checkpoint{
			Ref: &tuskpointv1.CheckpointRef{ThreadId: "t", CheckpointNs: namespace, CheckpointId: id},
		},
	}}
}

func TestAReplayGoesOnAfterACut(t *testing.T) {
	large := checkpointFrame("3", "")
	large.GetCheckpoint().State = &tuskpointv1.CheckpointState{Channels: []*tuskpointv1.Channel{{
		Name: "text", Content: &tuskpointv1.Channel_Large{
			Large: &tuskpointv1.LargeValue{Type: "json", SizeBytes: 4},
		},
	}}}
	chunk := func(offset uint64, text string) *tuskpointv1.ReplayThreadResponse {
		return &tuskpointv1.ReplayThreadResponse{Frame: &tuskpointv1.ReplayThreadResponse_Chunk{
			Chunk: &tuskpointv1.ValueChunk{Offset: offset, Data: []byte(text)},
		}}
	}
	script := &scripted{replay: func(
		call int, request *tuskpointv1.ReplayThreadRequest, send func(*tuskpointv1.ReplayThreadResponse),
	) error {
		switch call {
		case 1:
			return status.Error(codes.Unavailable, "not yet")
		case 2:
			send(checkpointFrame("1", ""))
			send(checkpointFrame("2", ""))
			return status.Error(codes.Internal, "stream terminated by RST_STREAM")
		case 3:
			want(t, "where it goes on", request.GetFromCheckpointId(), "2")
			send(checkpointFrame("2", ""))
			send(checkpointFrame("2", "sub"))
			send(large)
			send(chunk(0, `"a`))
			return status.Error(codes.Unavailable, "killed in the middle of a value")
		}
		want(t, "where it goes on", request.GetFromCheckpointId(), "2")
		send(checkpointFrame("2", ""))
		send(checkpointFrame("2", "sub"))
		send(large)
		send(chunk(0, `"a`))
		send(chunk(2, `b"`))
		return nil
	}}
	var got []string
	all := collect(t, serve(t, script).Replay(within(t), "t", nil))
	for _, one := range all {
		got = append(got, one.ID+one.Namespace)
	}
	want(t, "what was replayed", strings.Join(got, " "), "1 2 2sub 3")
	want(t, "the value", string(must(all[3].State())(t)["text"]), `"ab"`)
}

func TestAReplayThatBreaksTheContractIsAnError(t *testing.T) {
	for name, frame := range map[string]*tuskpointv1.ReplayThreadResponse{
		"an empty frame": {},
		"a chunk alone": {Frame: &tuskpointv1.ReplayThreadResponse_Chunk{
			Chunk: &tuskpointv1.ValueChunk{Data: []byte("a")},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			script := &scripted{replay: func(
				_ int, _ *tuskpointv1.ReplayThreadRequest, send func(*tuskpointv1.ReplayThreadResponse),
			) error {
				send(frame)
				return nil
			}}
			for _, err := range serve(t, script).Replay(within(t), "t", nil) {
				wantError(t, err, tuskpoint.ErrServer, "")
			}
			want(t, "the number of calls", script.calls, 1)
		})
	}
}

func TestAWatchThatTheServerEndsGoesOn(t *testing.T) {
	script := &scripted{watch: func(
		call int, request *tuskpointv1.WatchThreadRequest, send func(*tuskpointv1.WatchThreadResponse),
	) error {
		want(t, "the cursor", string(request.GetCursor()), []string{"", "1", "2"}[call-1])
		send(&tuskpointv1.WatchThreadResponse{Frame: &tuskpointv1.WatchThreadResponse_Event{
			Event: &tuskpointv1.ThreadEvent{
				Kind: tuskpoint.LabelSet, Cursor: []byte{byte('0' + call)}, Seq: uint64(call),
			},
		}})
		if call == 3 {
			return refusal(codes.OutOfRange, "CURSOR_COMPACTED")
		}
		return nil
	}}
	var last error
	seen := uint64(0)
	for event, err := range serve(t, script).Watch(within(t), "t", nil) {
		if last = err; err == nil {
			seen++
			want(t, "the sequence", event.Sequence, seen)
		}
	}
	want(t, "the number of events", seen, 3)
	wantError(t, last, tuskpoint.ErrCursorCompacted, "CURSOR_COMPACTED")
}

func TestAnAdoptionThatBreaksOffTellsEachStageOnce(t *testing.T) {
	var ids []string
	frame := func(stage tuskpoint.AdoptStage, bytes uint64) *tuskpointv1.AdoptHandoffResponse {
		return &tuskpointv1.AdoptHandoffResponse{Stage: stage, FetchedBytes: bytes}
	}
	verified := true
	script := &scripted{adopt: func(
		call int, request *tuskpointv1.AdoptHandoffRequest, send func(*tuskpointv1.AdoptHandoffResponse),
	) error {
		ids = append(ids, request.GetRequestId())
		send(frame(tuskpoint.Fetching, 0))
		send(frame(tuskpoint.Fetching, 10))
		if call == 1 {
			return status.Error(codes.Unavailable, "killed")
		}
		send(frame(tuskpoint.Fetched, 20))
		send(frame(tuskpoint.Verified, 20))
		last := frame(tuskpoint.Adopted, 20)
		last.Adoption = &tuskpointv1.Adoption{NewThreadId: "new", Verified: verified}
		send(last)
		return nil
	}}
	client := serve(t, script)
	descriptor := &tuskpoint.Descriptor{
		Source: "t:c", ThreadID: "t", CheckpointID: "c", BlobID: "b", BlobSHA256: strings.Repeat("a", 64),
	}
	stages := []tuskpoint.AdoptStage{}
	adoption := must(client.Adopt(within(t), descriptor, "new", &tuskpoint.AdoptOptions{
		OnProgress: func(progress tuskpoint.AdoptProgress) { stages = append(stages, progress.Stage) },
	}))(t)
	want(t, "the thread", adoption.NewThreadID, "new")
	want(t, "the number of stages", len(stages), 5)
	want(t, "the ID of the repetition", ids[1], ids[0])

	verified = false
	_, err := client.Adopt(within(t), descriptor, "new", nil)
	wantError(t, err, tuskpoint.ErrServer, "")
}

func TestContentThatTheServiceLacksIsSentInline(t *testing.T) {
	var inline [][]string
	script := &scripted{}
	script.save = func(call int, request *tuskpointv1.SaveCheckpointRequest) error {
		var names []string
		for _, channel := range request.GetCheckpoint().GetState().GetChannels() {
			want(t, "the digest is told", len(channel.GetDigest()), 32)
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

func missing(channel string) error {
	told, err := status.New(codes.FailedPrecondition, "values are missing").WithDetails(
		&errdetails.ErrorInfo{Reason: "VALUES_MISSING", Domain: "tuskpoint.dev"},
		&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{
			{Type: "VALUE", Subject: channel},
		}})
	if err != nil {
		panic(err)
	}
	return told.Err()
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

	// Less than what was asked for is no success.
	_, err := client.Save(within(t), "t", map[string]any{"text": text + "y"},
		&tuskpoint.SaveOptions{Durability: tuskpoint.Certified, Root: true})
	wantError(t, err, tuskpoint.ErrServer, "")
}
