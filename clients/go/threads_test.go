package tuskpoint_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

func TestSettingsOfAThreadAreSeen(t *testing.T) {
	client, thread := dial(t), newThread()
	save(t, client, thread, map[string]any{"a": 1})
	if err := client.SetRetention(within(t), thread, time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	if err := client.SetSearchable(within(t), thread, false, nil); err != nil {
		t.Fatal(err)
	}
	described := must(client.GetThread(within(t), thread))(t)
	want(t, "the retention", described.GetRetention().AsDuration(), time.Hour)
	want(t, "it is not searchable", described.GetUnsearchable(), true)
	if err := client.SetRetention(within(t), thread, 0, nil); err != nil {
		t.Fatal(err)
	}
	described = must(client.GetThread(within(t), thread))(t)
	want(t, "the retention", described.GetRetention().AsDuration(), 0)
	err := client.SetSearchable(within(t), newThread(), true, nil)
	wantError(t, err, tuskpoint.ErrNotFound, "THREAD_NOT_FOUND")
}

func TestThreadsAreListedByTheirLastChange(t *testing.T) {
	client, agent := dial(t), newThread()
	first, second := agent+"-1", agent+"-2"
	for _, thread := range []string{second, first, second} {
		must(client.Save(within(t), thread, map[string]any{"a": 1},
			&tuskpoint.SaveOptions{AgentID: agent}))(t)
	}
	list := func(options tuskpoint.ThreadOptions) []*tuskpointv1.Thread {
		options.AgentID = agent
		return collect(t, client.ListThreads(within(t), &options))
	}
	names := func(threads []*tuskpointv1.Thread) string {
		var found []string
		for _, one := range threads {
			found = append(found, one.GetThreadId())
		}
		return strings.Join(found, " ")
	}
	latest := list(tuskpoint.ThreadOptions{LatestFirst: true})
	want(t, "the latest", names(latest), second+" "+first)
	changed := latest[0].GetUpdateTime().AsTime()
	want(t, "those since", names(list(tuskpoint.ThreadOptions{ChangedAfter: changed})), second)
	want(t, "those before", names(list(tuskpoint.ThreadOptions{ChangedBefore: changed})), first)
}

func TestThreadsAreCopiedAndPruned(t *testing.T) {
	client, thread := dial(t), newThread()
	run := newThread()
	for step := range 3 {
		must(client.Save(within(t), thread, map[string]any{"step": step},
			&tuskpoint.SaveOptions{Metadata: map[string]any{"run_id": run}}))(t)
	}
	copied := thread + "-copy"
	want(t, "the copied", must(client.Copy(within(t), thread, copied, nil))(t), 3)
	_, err := client.Copy(within(t), thread, copied, nil)
	wantError(t, err, tuskpoint.ErrAlreadyExists, "THREAD_EXISTS")
	both := []string{thread, copied, newThread()}
	want(t, "the pruned", must(client.Prune(within(t), both, nil))(t), 4)
	want(t, "the deleted", must(client.DeleteRuns(within(t), []string{run}, nil))(t), 2)
	save(t, client, thread, map[string]any{"a": 1})
	all := &tuskpoint.PruneOptions{KeepNothing: true}
	want(t, "the pruned", must(client.Prune(within(t), both, all))(t), 1)
}

func TestLineageDifferencesAndVerdicts(t *testing.T) {
	client, thread := dial(t), newThread()
	first := save(t, client, thread, map[string]any{"a": 1, "b": 1})
	must(client.Save(within(t), thread, map[string]any{"a": 2, "b": 1},
		&tuskpoint.SaveOptions{Durability: tuskpoint.Certified}))(t)
	fork := must(client.Fork(within(t), thread, first, "", nil))(t)

	lineage := must(client.Lineage(within(t), thread))(t)
	want(t, "the number of descendants", len(lineage.GetDescendants()), 1)
	want(t, "the descendant", lineage.GetDescendants()[0].GetTo().GetThreadId(), fork.NewThreadID)

	for _, options := range []*tuskpoint.DiffOptions{nil, {ToThreadID: fork.NewThreadID}} {
		diff := must(client.Diff(within(t), thread, first, "", options))(t)
		if options != nil {
			want(t, "the number of changes to a fork", len(diff.GetChanges()), 0)
			continue
		}
		want(t, "the number of changes", len(diff.GetChanges()), 1)
		want(t, "the channel", diff.GetChanges()[0].GetChannel(), "a")
		want(t, "its value", diff.GetChanges()[0].GetToJson(), "2")
	}

	verdicts := 0
	verified := must(client.Verify(within(t), thread, &tuskpoint.VerifyOptions{
		OnVerdict: func(one *tuskpointv1.CheckpointVerdict) {
			verdicts++
			want(t, "the verdict", one.GetVerdict(), tuskpointv1.Verdict_VERDICT_PASS)
		},
	}))(t)
	want(t, "it is whole", verified.OK, true)
	want(t, "the number of verdicts", verdicts, 2)
	want(t, "those that passed", verified.Passed, 2)
	want(t, "those that failed", len(verified.Failures), 0)
	want(t, "problems in the journal", len(verified.JournalDetails), 0)
	_, err := client.Verify(within(t), newThread(), nil)
	wantError(t, err, tuskpoint.ErrNotFound, "THREAD_NOT_FOUND")

	entries := collect(t, client.Manifest(within(t), thread))
	want(t, "the number of entries", len(entries), 2)
	want(t, "the first entry", entries[0].GetCheckpointId(), first)
	stored := must(client.StoreManifest(within(t), thread))(t)
	want(t, "the hash of the manifest", len(stored.SHA256), 64)
	if none := must(client.StoreManifest(within(t), fork.NewThreadID))(t); none != nil {
		want(t, "the hash of the fork's manifest", len(none.SHA256), 64) // certified meanwhile
	}
}

func TestSnapshotsAreRestored(t *testing.T) {
	client, one := dial(t), newThread()
	other := one + "-other"
	first := save(t, client, one, map[string]any{"a": 1})
	save(t, client, other, map[string]any{"b": 1})
	made := must(client.CreateSnapshot(within(t), []string{one, other}, &tuskpoint.SnapshotOptions{
		SessionID: one, Hostname: "host", WorkingDirectory: "/work", Metadata: map[string]any{"why": "test"},
	}))(t)
	want(t, "the number of members", len(made.GetMembers()), 2)
	want(t, "the first member", made.GetMembers()[0].GetCheckpointId(), first)
	want(t, "the metadata", string(made.GetMetadataJson()), `{"why":"test"}`)

	id, session := made.GetSnapshotId(), &tuskpoint.SnapshotFilter{SessionID: one}
	want(t, "the snapshot", must(client.GetSnapshot(within(t), id))(t).GetSessionId(), one)
	want(t, "the latest", must(client.LatestSnapshot(within(t), session))(t).GetSnapshotId(), id)
	again := must(client.CreateSnapshot(within(t), []string{one}, &tuskpoint.SnapshotOptions{SessionID: one}))(t)
	var listed []string
	for _, one := range collect(t, client.ListSnapshots(within(t), session)) {
		listed = append(listed, one.GetSnapshotId())
	}
	want(t, "the list", strings.Join(listed, " "), again.GetSnapshotId()+" "+id)
	named := &tuskpoint.SnapshotFilter{Hostname: "another"}
	_, err := client.LatestSnapshot(within(t), named)
	wantError(t, err, tuskpoint.ErrNotFound, "SNAPSHOT_NOT_FOUND")

	save(t, client, one, map[string]any{"a": 2})
	restored := must(client.RestoreSnapshot(within(t), id, nil))(t)
	threads := []string{restored[0].GetThreadId(), restored[1].GetThreadId()}
	want(t, "they are new", slices.Contains(threads, one) || slices.Contains(threads, other), false)
	back := must(client.RestoreSnapshot(within(t), id, &tuskpoint.RestoreOptions{Rollback: true}))(t)
	want(t, "the thread rolled back", back[0].GetThreadId(), one)
	state := must(must(client.Load(within(t), one, "", nil))(t).State())(t)
	want(t, "its state", string(state["a"]), "1")

	want(t, "it is deleted", must(client.DeleteSnapshot(within(t), id, nil))(t), true)
	want(t, "it is deleted again", must(client.DeleteSnapshot(within(t), id, nil))(t), false)
}
