package tuskpoint_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// planned saves an input and the step of the node "plan", whose messages report tokens, as a graph
// does. It returns the latest checkpoint.
func planned(t *testing.T, client *tuskpoint.Client, thread string) *tuskpointv1.CheckpointRef {
	t.Helper()
	version := func(number int64) *tuskpointv1.Version {
		return &tuskpointv1.Version{Kind: &tuskpointv1.Version_Integer{Integer: number}}
	}
	channel := func(name string, number int64) *tuskpointv1.Channel {
		return &tuskpointv1.Channel{Name: name, Version: version(number), Content: &tuskpointv1.Channel_Value{
			Value: &tuskpointv1.Value{Type: "json", Data: []byte("[]")},
		}}
	}
	step := func(parent, metadata string, state *tuskpointv1.CheckpointState) *tuskpointv1.CheckpointRef {
		state.SchemaVersion = 4
		return must(client.Checkpoints().SaveCheckpoint(within(t), &tuskpointv1.SaveCheckpointRequest{
			Checkpoint: &tuskpointv1.Checkpoint{
				Ref: &tuskpointv1.CheckpointRef{ThreadId: thread}, ParentCheckpointId: parent,
				State: state, MetadataJson: []byte(metadata),
			},
		}))(t).GetRef()
	}
	input := step("", `{"source":"input","step":-1}`, &tuskpointv1.CheckpointState{
		Channels: []*tuskpointv1.Channel{channel("topic", 1)},
	})
	write(t, client, input, "plan", "notes", `[{"usage_metadata":{"input_tokens":12,"output_tokens":3}}]`)
	seen := map[string]*tuskpointv1.Version{"topic": version(1)}
	return step(input.GetCheckpointId(), `{"source":"loop","step":0}`, &tuskpointv1.CheckpointState{
		Channels:     []*tuskpointv1.Channel{channel("notes", 2), channel("topic", 1)},
		VersionsSeen: map[string]*tuskpointv1.VersionsSeen{"plan": {Channels: seen}},
	})
}

// write saves a write of the task of a node.
func write(t *testing.T, client *tuskpoint.Client, ref *tuskpointv1.CheckpointRef, node, channel, text string) {
	t.Helper()
	must(client.Checkpoints().SaveWrites(within(t), &tuskpointv1.SaveWritesRequest{
		Ref: ref,
		Writes: []*tuskpointv1.PendingWrite{{
			TaskId: node, TaskPath: "~__pregel_pull, " + node, Channel: channel,
			Content: &tuskpointv1.PendingWrite_Value{
				Value: &tuskpointv1.Value{Type: "json", Data: []byte(text)},
			},
		}},
	}))(t)
}

func TestAStepIsInEveryReadThatRequestsIt(t *testing.T) {
	client, thread := dial(t), newThread()
	latest := planned(t, client, thread)
	write(t, client, latest, "review", "__interrupt__", `[{"value":{"question":"Publish?"},"id":"0123"}]`)
	expected := &tuskpoint.Step{
		Nodes: []string{"plan"}, ChangedChannels: []string{"notes"}, NextNodes: []string{"review"},
		Questions: []*tuskpoint.Question{{InterruptId: "0123", Node: "review", Text: "Publish?"}},
		Tokens:    &tuskpoint.TokenUsage{InputTokens: 12, OutputTokens: 3},
	}
	wantStep := func(what string, checkpoint *tuskpoint.Checkpoint) {
		t.Helper()
		want(t, what, checkpoint.ID, latest.GetCheckpointId())
		if !proto.Equal(checkpoint.Step, expected) {
			t.Errorf("%s has the step %v, not %v", what, checkpoint.Step, expected)
		}
	}

	view := tuskpoint.ViewStep
	loaded := must(client.Load(within(t), thread, "", &tuskpoint.LoadOptions{View: view}))(t)
	wantStep("the loaded", loaded)
	want(t, "its channels and writes", len(loaded.Channels)+len(loaded.Writes), 0)
	wantStep("the listed", collect(t, client.List(within(t), thread, &tuskpoint.ListOptions{View: view}))[0])
	wantStep("the replayed", collect(t, client.Replay(within(t), thread, &tuskpoint.ReplayOptions{View: view}))[1])
	kinds := []tuskpoint.EventKind{tuskpoint.CheckpointSaved, tuskpoint.WritesSaved}
	var events []*tuskpoint.Event
	for event, err := range client.Watch(within(t), thread, &tuskpoint.WatchOptions{Kinds: kinds, View: view}) {
		if err != nil {
			t.Fatal(err)
		}
		if events = append(events, event); len(events) == 4 {
			break
		}
	}
	want(t, "the kind", events[2].Kind, tuskpoint.CheckpointSaved)
	wantStep("the saved", events[2].Checkpoint)
	want(t, "the kind", events[3].Kind, tuskpoint.WritesSaved)
	wantStep("the checkpoint of a write", events[3].Checkpoint)

	for _, other := range []tuskpoint.View{tuskpoint.ViewEntry, tuskpoint.ViewFull, tuskpoint.ViewJSON} {
		loaded := must(client.Load(within(t), thread, "", &tuskpoint.LoadOptions{View: other}))(t)
		want(t, fmt.Sprintf("the step in %v", other), loaded.Step, nil)
	}
	_, err := client.Load(within(t), thread, "",
		&tuskpoint.LoadOptions{View: view, Source: tuskpoint.SourceBlob})
	wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
}

func TestAThreadSaysWhatItWaitsForOrWhyItFailed(t *testing.T) {
	client, agent := dial(t), newThread()
	asking, failing := agent+"-asking", agent+"-failing"
	for _, thread := range []string{asking, failing} {
		must(client.Save(within(t), thread, map[string]any{"a": 1},
			&tuskpoint.SaveOptions{AgentID: agent, Summary: "Planned."}))(t)
	}
	ref := func(thread string) *tuskpointv1.CheckpointRef {
		return &tuskpointv1.CheckpointRef{
			ThreadId: thread, CheckpointId: must(client.Load(within(t), thread, "", nil))(t).ID,
		}
	}
	write(t, client, ref(asking), "review", "__interrupt__", `[{"value":"Publish?","id":"0123"}]`)
	write(t, client, ref(failing), "print", "__error__", `{"name":"TypeError","message":"no paper"}`)

	question := &tuskpoint.Question{InterruptId: "0123", Node: "review", Text: "Publish?"}
	failure := &tuskpoint.Failure{Node: "print", Type: "TypeError", Message: "no paper"}
	threads := collect(t, client.ListThreads(within(t), &tuskpoint.ThreadOptions{AgentID: agent}))
	for _, thread := range []string{asking, failing} {
		threads = append(threads, must(client.GetThread(within(t), thread))(t))
	}
	for i, thread := range threads {
		wantQuestion, wantFailure := question, failure
		if i%2 == 0 {
			wantFailure = nil
		} else {
			wantQuestion = nil
		}
		want(t, "the question", proto.Equal(thread.GetQuestion(), wantQuestion), true)
		want(t, "the failure", proto.Equal(thread.GetFailure(), wantFailure), true)
		want(t, "the summary", thread.GetSummary(), "Planned.")
		want(t, "the number of checkpoints", thread.GetCheckpointCount(), 1)
	}
}

func TestAServerTellsItsPort(t *testing.T) {
	info := must(dial(t).Info(within(t)))(t)
	_, port, _ := strings.Cut(shared.Target, ":")
	want(t, "the port", strconv.FormatUint(uint64(info.GetGrpcPort()), 10), port)
}
