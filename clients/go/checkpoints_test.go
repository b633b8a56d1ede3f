package tuskpoint_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

func TestASaveComesBack(t *testing.T) {
	client, thread := dial(t), newThread()
	saved := must(client.Save(within(t), thread, map[string]any{
		"plan": []string{"read", "write"}, "n": 3, "none": nil,
	}, &tuskpoint.SaveOptions{
		Metadata: map[string]any{"source": "loop", "step": 1}, Summary: "Planned.",
		AgentID: "planner", Label: "good",
	}))(t)
	want(t, "the durability", saved.Durability, tuskpoint.Journaled)
	want(t, "the sequence", saved.Sequence, 1)

	for _, id := range []string{"", saved.CheckpointID} {
		loaded := must(client.Load(within(t), thread, id, nil))(t)
		want(t, "the ID", loaded.ID, saved.CheckpointID)
		want(t, "the thread", loaded.ThreadID, thread)
		want(t, "the parent", loaded.ParentID, "")
		want(t, "the metadata", string(loaded.Metadata), `{"source":"loop","step":1}`)
		want(t, "the summary", loaded.Summary, "Planned.")
		want(t, "the label", loaded.Label, "good")
		want(t, "the agent", loaded.AgentID, "planner")
		var state struct {
			Plan []string
			N    int
			None *string
		}
		if err := loaded.Decode(&state); err != nil {
			t.Fatal(err)
		}
		want(t, "the plan", strings.Join(state.Plan, " "), "read write")
		want(t, "the number", state.N, 3)
	}
	described := must(client.GetThread(within(t), thread))(t)
	want(t, "the agent", described.GetAgentId(), "planner")
	want(t, "the count", described.GetCheckpointCount(), 1)
}

func TestOnlyWhatChangedIsSentAgain(t *testing.T) {
	client, thread := dial(t), newThread()
	first := save(t, client, thread, map[string]any{"kept": "as it was", "step": 1})
	second := save(t, client, thread, map[string]any{"kept": "as it was", "step": 2})

	// Another client, without memory of the thread, continues from the same head.
	third := save(t, dial(t), thread, map[string]any{"kept": "as it was", "step": 3})
	fourth := save(t, client, thread, map[string]any{"step": 4})

	ids := []string{first, second, third, fourth}
	versions := map[string][]string{}
	for i, checkpoint := range collect(t, client.Replay(within(t), thread, nil)) {
		want(t, "the ID", checkpoint.ID, ids[i])
		if i > 0 {
			want(t, "the parent", checkpoint.ParentID, ids[i-1])
		}
		for _, channel := range checkpoint.Channels {
			versions[channel.Name] = append(versions[channel.Name], channel.Version.GetText())
		}
	}
	if kept := slices.Compact(versions["kept"]); len(kept) != 1 {
		t.Errorf("a channel that did not change has the versions %v", kept)
	}
	if steps := versions["step"]; len(steps) != 4 || !slices.IsSorted(steps) ||
		len(slices.Compact(steps)) != 4 {
		t.Errorf("a channel that always changed has the versions %v", steps)
	}
}

func TestAForkedLineIsSavedWithItsParent(t *testing.T) {
	client, thread := dial(t), newThread()
	first := save(t, client, thread, map[string]any{"a": 1})
	save(t, client, thread, map[string]any{"a": 2})
	other := must(client.Save(within(t), thread, map[string]any{"b": 3},
		&tuskpoint.SaveOptions{ParentID: first}))(t)
	loaded := must(client.Load(within(t), thread, "", nil))(t)
	want(t, "the latest", loaded.ID, other.CheckpointID)
	want(t, "its parent", loaded.ParentID, first)
	state := must(loaded.State())(t)
	want(t, "the channels", strings.Join(slices.Sorted(maps.Keys(state)), " "), "b")

	root := must(client.Save(within(t), thread, map[string]any{"a": 1},
		&tuskpoint.SaveOptions{Root: true}))(t)
	loaded = must(client.Load(within(t), thread, root.CheckpointID, nil))(t)
	want(t, "the parent of a root", loaded.ParentID, "")
}

func TestAnExpectedHeadGuardsAThread(t *testing.T) {
	client, thread := dial(t), newThread()
	first := save(t, client, thread, map[string]any{"a": 1})
	second := must(client.Save(within(t), thread, map[string]any{"a": 2},
		&tuskpoint.SaveOptions{ExpectedHead: first}))(t)
	_, err := client.Save(within(t), thread, map[string]any{"a": 3},
		&tuskpoint.SaveOptions{ExpectedHead: first})
	failure := wantError(t, err, tuskpoint.ErrConflict, "HEAD_MOVED")
	want(t, "the head", failure.Metadata["head"], second.CheckpointID)
	_, err = client.Save(within(t), thread, map[string]any{"a": 3}, &tuskpoint.SaveOptions{First: true})
	wantError(t, err, tuskpoint.ErrConflict, "HEAD_MOVED")
}

func TestAgentsThatSaveAtOnceFollowOneAnother(t *testing.T) {
	thread := newThread()
	var agents sync.WaitGroup
	for range 16 {
		client := dial(t)
		agents.Add(1)
		go func() {
			defer agents.Done()
			for step := range 4 {
				if _, err := client.Save(t.Context(), thread, map[string]any{"step": step}, nil); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	agents.Wait()
	all := collect(t, dial(t).Replay(within(t), thread, nil))
	want(t, "the number of checkpoints", len(all), 64)
	for i := 1; i < len(all); i++ {
		want(t, "the parent", all[i].ParentID, all[i-1].ID)
	}
}

func TestFiveMebibytesComeBack(t *testing.T) {
	t.Parallel()
	client, thread := dial(t), newThread()
	text := strings.Repeat("é", 5<<19) + strings.Repeat("🐘", 1000)
	saved := save(t, client, thread, map[string]any{"text": text, "small": true})
	again := save(t, client, thread, map[string]any{"text": text, "small": false})
	for _, id := range []string{saved, again} {
		checkpoint := must(client.Load(within(t), thread, id, nil))(t)
		var state struct{ Text string }
		if err := checkpoint.Decode(&state); err != nil {
			t.Fatal(err)
		}
		want(t, "the text is the same", state.Text == text, true)
	}
	replayed := collect(t, client.Replay(within(t), thread, nil))
	listed := collect(t, client.List(within(t), thread, &tuskpoint.ListOptions{View: tuskpoint.ViewFull}))
	want(t, "the number of replayed ones", len(replayed), 2)
	want(t, "the number of listed ones", len(listed), 2)
	for _, checkpoint := range append(replayed, listed...) {
		state := must(checkpoint.State())(t)
		want(t, "the size", len(state["text"]), len(text)+2)
	}
}

func TestNumbersAndTextKeepEveryBit(t *testing.T) {
	client, thread := dial(t), newThread()+" Ünïcode/\u202e 𝔘 \x01 'quoted' %20"
	save(t, client, thread, map[string]any{
		"clé 🐘":   "café \u202e <&>",
		"largest": uint64(18446744073709551615),
		"exact":   json.Number("9007199254740993.00000000000000000001"),
		"nested":  map[string]any{"n": int64(-9223372036854775808)},
	})
	checkpoint := must(client.Load(within(t), thread, "", nil))(t)
	state := must(checkpoint.State())(t)
	want(t, "the text", string(state["clé 🐘"]), `"café `+"\u202e"+` <&>"`)
	want(t, "the largest", string(state["largest"]), "18446744073709551615")
	want(t, "the exact", string(state["exact"]), "9007199254740993.00000000000000000001")
	var decoded map[string]any
	if err := checkpoint.Decode(&decoded); err != nil {
		t.Fatal(err)
	}
	nested, _ := decoded["nested"].(map[string]any)
	want(t, "the nested", nested["n"], any(json.Number("-9223372036854775808")))
}

func TestListingsAreNarrowed(t *testing.T) {
	client, thread := dial(t), newThread()
	var ids []string
	for step := range 3 {
		saved := must(client.Save(within(t), thread, map[string]any{"step": step},
			&tuskpoint.SaveOptions{Metadata: map[string]any{"even": step%2 == 0}}))(t)
		ids = append(ids, saved.CheckpointID)
	}
	root := ""
	for name, one := range map[string]struct {
		options *tuskpoint.ListOptions
		expect  []string
	}{
		"all":    {nil, []string{ids[2], ids[1], ids[0]}},
		"limit":  {&tuskpoint.ListOptions{Limit: 1}, ids[2:]},
		"ID":     {&tuskpoint.ListOptions{CheckpointID: ids[1]}, ids[1:2]},
		"before": {&tuskpoint.ListOptions{Before: ids[1], Namespace: &root}, ids[:1]},
		"filter": {&tuskpoint.ListOptions{Filter: map[string]any{"even": false}}, ids[1:2]},
	} {
		found := collect(t, client.List(within(t), thread, one.options))
		var got []string
		for _, checkpoint := range found {
			got = append(got, checkpoint.ID)
			want(t, "channels of an entry", len(checkpoint.Channels), 0)
		}
		if !slices.Equal(got, one.expect) {
			t.Errorf("%s lists %v, not %v", name, got, one.expect)
		}
	}
	for range client.List(within(t), thread, nil) {
		break // the reader leaves after its last event
	}
	for _, err := range client.List(within(t), "", nil) {
		wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
	}
}

func TestErrorsForMissingThingsHaveAReason(t *testing.T) {
	client, thread := dial(t), newThread()
	_, err := client.Load(within(t), thread, "", nil)
	failure := wantError(t, err, tuskpoint.ErrNotFound, "CHECKPOINT_NOT_FOUND")
	want(t, "the thread", failure.Metadata["thread_id"], thread)
	want(t, "the canonical status", status.Code(err), failure.Status)
	info, _ := status.Convert(err).Details()[0].(*errdetails.ErrorInfo)
	want(t, "the domain", info.GetDomain(), "tuskpoint.dev")
	_, err = client.GetThread(within(t), thread)
	wantError(t, err, tuskpoint.ErrNotFound, "THREAD_NOT_FOUND")
	for _, err := range client.Replay(within(t), thread, nil) {
		wantError(t, err, tuskpoint.ErrNotFound, "THREAD_NOT_FOUND")
	}
	want(t, "what is listed", len(collect(t, client.List(within(t), thread, nil))), 0)
}

func TestErrorsForBadInputNameTheFields(t *testing.T) {
	client := dial(t)
	_, err := client.Save(within(t), "", map[string]any{"a": 1}, nil)
	failure := wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
	if len(failure.Violations) == 0 || !strings.HasSuffix(failure.Violations[0].Field, "ref.thread_id") {
		t.Errorf("the violations are %v", failure.Violations)
	}
	for name, state := range map[string]map[string]any{
		"a function":     {"f": func() {}},
		"an empty name":  {"": 1},
		"no UTF-8":       {"\xff": 1},
		"not a number":   {"n": json.Number("one")},
		"broken raw":     {"raw": json.RawMessage(`{"a":`)},
		"raw bytes":      {"raw": json.RawMessage("\"\xff\"")},
		"infinite depth": {"loop": loop()},
	} {
		_, err := client.Save(within(t), newThread(), state, nil)
		if failure := wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD"); failure == nil {
			t.Error(name)
		}
	}
	_, err = client.Load(within(t), "thread \xff", "", nil)
	wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
}

func loop() any {
	inner := map[string]any{}
	inner["again"] = inner
	return inner
}

func TestADeletedThreadStaysSo(t *testing.T) {
	client, thread := dial(t), newThread()
	id := save(t, client, thread, map[string]any{"a": 1})
	want(t, "the deleted", must(client.Delete(within(t), thread, nil))(t), 1)
	want(t, "the deleted", must(client.Delete(within(t), thread, nil))(t), 0)
	_, err := client.Load(within(t), thread, "", nil)
	wantError(t, err, tuskpoint.ErrNotFound, "CHECKPOINT_NOT_FOUND")
	_, err = client.Save(within(t), thread, map[string]any{"a": 2}, &tuskpoint.SaveOptions{ParentID: id})
	wantError(t, err, tuskpoint.ErrThreadDeleted, "THREAD_DELETED")
	save(t, client, thread, map[string]any{"a": 3}) // the next save has no parent
}

func TestASaveThatRemembersTooMuchSucceeds(t *testing.T) {
	client, thread := dial(t), newThread()
	save(t, client, thread, map[string]any{"a": 1})
	must(dial(t).Delete(within(t), thread, nil))(t)
	save(t, client, thread, map[string]any{"a": 1})
	want(t, "the number", len(collect(t, client.List(within(t), thread, nil))), 1)
}

func TestForksRollbacksAndLabels(t *testing.T) {
	client, thread := dial(t), newThread()
	first := save(t, client, thread, map[string]any{"a": 1})
	save(t, client, thread, map[string]any{"a": 2})

	fork := must(client.Fork(within(t), thread, first, thread+"-fork", nil))(t)
	want(t, "the fork's origin", fork.ForkedFrom, thread+":"+first)
	want(t, "the fork's checkpoint", fork.CheckpointID, first)
	_, err := client.Fork(within(t), thread, first, thread+"-fork", nil)
	wantError(t, err, tuskpoint.ErrAlreadyExists, "THREAD_EXISTS")

	undone := must(client.Rollback(within(t), thread, first, nil))(t)
	want(t, "the rollback's origin", undone.RolledBackFrom, thread+":"+first)
	loaded := must(client.Load(within(t), thread, "", nil))(t)
	want(t, "the latest", loaded.ID, undone.CheckpointID)
	want(t, "its lineage", loaded.Lineage.RolledBackFrom, thread+":"+first)
	_, err = client.Rollback(within(t), thread, first, &tuskpoint.RollbackOptions{ExpectedHead: first})
	wantError(t, err, tuskpoint.ErrConflict, "HEAD_MOVED")

	want(t, "the labelled", must(client.SetLabel(within(t), thread, first, "good", nil))(t), first)
	labelled := collect(t, client.List(within(t), thread, &tuskpoint.ListOptions{Label: "good"}))
	want(t, "the number of labelled ones", len(labelled), 1)

	var named []string
	for one, err := range client.ListThreads(within(t), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(one.GetThreadId(), thread) {
			named = append(named, one.GetThreadId())
		}
	}
	want(t, "the threads", strings.Join(named, " "), thread+" "+thread+"-fork")
}

func TestACertifiedSaveIsInTheBlobStore(t *testing.T) {
	client, thread := dial(t), newThread()
	saved := must(client.Save(within(t), thread, map[string]any{"a": 1},
		&tuskpoint.SaveOptions{Durability: tuskpoint.Certified}))(t)
	want(t, "the durability", saved.Durability, tuskpoint.Certified)
	loaded := must(client.Load(within(t), thread, "",
		&tuskpoint.LoadOptions{Source: tuskpoint.SourceBlob}))(t)
	want(t, "the hash", len(loaded.Location.SHA256), 64)

	save(t, client, thread, map[string]any{"a": 2})
	must(client.Flush(within(t)))(t)
	status := must(client.Status(within(t)))(t)
	want(t, "there is a catalog", status.GetCatalog().GetBlobId() != "", true)
	info := must(client.Info(within(t)))(t)
	want(t, "the methods are listed", slices.Contains(info.GetMethods(),
		"tuskpoint.v1.CheckpointService/SaveCheckpoint"), true)
}

func TestValuesOfFrameworksAreReadInTheirJSONView(t *testing.T) {
	client, thread := dial(t), newThread()
	packed := []byte{0x81, 0xa1, 'a', 0x01}
	saved := must(client.Checkpoints().SaveCheckpoint(within(t), &tuskpointv1.SaveCheckpointRequest{
		Checkpoint: &tuskpointv1.Checkpoint{
			Ref: &tuskpointv1.CheckpointRef{ThreadId: thread},
			State: &tuskpointv1.CheckpointState{SchemaVersion: 4, Channels: []*tuskpointv1.Channel{{
				Name:    "packed",
				Version: &tuskpointv1.Version{Kind: &tuskpointv1.Version_Integer{Integer: 7}},
				Content: &tuskpointv1.Channel_Value{
					Value: &tuskpointv1.Value{Type: "msgpack", Data: packed},
				},
			}}},
		},
	}))(t)
	minted := saved.GetRef().GetCheckpointId()
	want(t, "the server mints UUIDs of version 6", len(minted) == 36 && minted[14] == '6', true)

	loaded := must(client.Load(within(t), thread, minted, nil))(t)
	want(t, "the bytes", string(loaded.Channels[0].Data), string(packed))
	want(t, "the digest", loaded.Channels[0].Digest,
		fmt.Sprintf("%x", sha256.Sum256(append([]byte("msgpack\x00"), packed...))))
	_, err := loaded.State()
	wantError(t, err, tuskpoint.ErrUnreadable, "")
	shown := must(client.Load(within(t), thread, "", &tuskpoint.LoadOptions{View: tuskpoint.ViewJSON}))(t)
	want(t, "the value", string(must(shown.State())(t)["packed"]), `{"a":1}`)

	// A save of this client continues the versions in the kind that they have.
	save(t, client, thread, map[string]any{"packed": "other"})
	loaded = must(client.Load(within(t), thread, "", nil))(t)
	want(t, "the version", loaded.Channels[0].Version.GetInteger(), 8)
}

func TestSearchFindsPointersThatLoad(t *testing.T) {
	client, thread := dial(t), newThread()
	saved := must(client.Save(within(t), thread, map[string]any{"a": 1}, &tuskpoint.SaveOptions{
		Summary: "The zebrafinch sang at dawn.", Metadata: map[string]any{"outcome": "success"},
		Vector: []float32{0.1, 0.9},
	}))(t)
	found := must(client.Search(within(t), "zebrafinch dawn", &tuskpoint.SearchOptions{
		ThreadID: thread, Filter: map[string]any{"outcome": "success"},
	}))(t)
	want(t, "the number of results", len(found.Results), 1)
	want(t, "the result", found.Results[0].CheckpointID, saved.CheckpointID)
	want(t, "the mode", found.Mode, tuskpoint.SearchLexical)
	must(client.Load(within(t), found.Results[0].ThreadID, found.Results[0].CheckpointID, nil))(t)

	nearest := must(client.SearchVector(within(t), []float32{0.2, 0.8},
		&tuskpoint.SearchOptions{ThreadID: thread, Metric: tuskpoint.L2}))(t)
	want(t, "the nearest", nearest.Results[0].CheckpointID, saved.CheckpointID)
	want(t, "the metric", nearest.Metric, "l2")

	_, err := client.Search(within(t), "zebrafinch", &tuskpoint.SearchOptions{Limit: 100000})
	failure := wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
	want(t, "the field", failure.Violations[0].Field, "limit")
}

func TestSearchWarnsOfTextThatWasCut(t *testing.T) {
	client, thread := dial(t), newThread()
	plan := "begin with the walrus" + strings.Repeat(" and then", 2000) + " end with the puffin"
	must(client.Save(within(t), thread, map[string]any{"current_plan": plan}, nil))(t)
	in := &tuskpoint.SearchOptions{ThreadID: thread}
	missed := must(client.Search(within(t), "walrus", in))(t)
	want(t, "the number of results", len(missed.Results), 0)
	want(t, "the number of warnings", len(missed.Warnings), 1)
	want(t, "the kind", missed.Warnings[0].Kind, tuskpointv1.WarningKind_WARNING_KIND_TEXT_TRUNCATED)
	found := must(client.Search(within(t), "puffin", in))(t)
	want(t, "whether it was cut", found.Results[0].Truncated, true)
	want(t, "the number of warnings", len(found.Warnings), 0)
}
