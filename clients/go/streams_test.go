package tuskpoint_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

func checkpointFrame(id, namespace string) *tuskpointv1.ReplayThreadResponse {
	return &tuskpointv1.ReplayThreadResponse{Frame: &tuskpointv1.ReplayThreadResponse_Checkpoint{
		Checkpoint: &tuskpointv1.Checkpoint{
			Ref: &tuskpointv1.CheckpointRef{ThreadId: "t", CheckpointNs: namespace, CheckpointId: id},
		},
	}}
}

func TestAReplayResumesAfterABreak(t *testing.T) {
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
			want(t, "where it resumes", request.GetFromCheckpointId(), "2")
			send(checkpointFrame("2", ""))
			send(checkpointFrame("2", "sub"))
			send(large)
			send(chunk(0, `"a`))
			return status.Error(codes.Unavailable, "killed in the middle of a value")
		}
		want(t, "where it resumes", request.GetFromCheckpointId(), "2")
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

func TestAWatchThatTheServerEndsResumes(t *testing.T) {
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

func TestAnAdoptionThatBreaksReportsEachStageOnce(t *testing.T) {
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
