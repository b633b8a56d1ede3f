package tuskpoint_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/internal/servertest"
)

func TestAWatchContinuesAfterItsCursor(t *testing.T) {
	t.Parallel()
	client, thread := dial(t), newThread()
	ids := []string{
		save(t, client, thread, map[string]any{"a": 1}), save(t, client, thread, map[string]any{"a": 2}),
	}
	must(client.SetLabel(within(t), thread, ids[0], "good", nil))(t)

	var cursor []byte
	kinds := []tuskpoint.EventKind{tuskpoint.CheckpointSaved, tuskpoint.CheckpointSaved, tuskpoint.LabelSet}
	for i, id := range []string{ids[0], ids[1], ids[0]} {
		for event, err := range client.Watch(within(t), thread, &tuskpoint.WatchOptions{Cursor: cursor}) {
			if err != nil {
				t.Fatal(err)
			}
			want(t, "the kind", event.Kind, kinds[i])
			want(t, "the checkpoint", event.Checkpoint.ID, id)
			want(t, "the sequence", event.Sequence, uint64(i+1))
			cursor = event.Cursor
			break
		}
	}
	for event, err := range client.Watch(within(t), thread,
		&tuskpoint.WatchOptions{Kinds: []tuskpoint.EventKind{tuskpoint.LabelSet}}) {
		if err != nil {
			t.Fatal(err)
		}
		want(t, "the label", event.Checkpoint.Label, "good")
		break
	}
	for event, err := range client.Watch(within(t), thread,
		&tuskpoint.WatchOptions{
			Cursor: cursor, Kinds: []tuskpoint.EventKind{tuskpoint.LabelSet}, Progress: time.Second,
		}) {
		if err != nil {
			t.Fatal(err)
		}
		want(t, "the kind", event.Kind, tuskpoint.Progress)
		break
	}
	for _, err := range client.Watch(within(t), newThread(), &tuskpoint.WatchOptions{Cursor: cursor}) {
		failure := wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
		want(t, "the field", failure.Violations[0].Field, "cursor")
	}
	for _, err := range client.Watch(within(t), newThread(), nil) {
		wantError(t, err, tuskpoint.ErrNotFound, "THREAD_NOT_FOUND")
	}
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	client, thread := dial(t), newThread()
	save(t, client, thread, map[string]any{"a": 1})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	events := 0
	for _, err := range client.Watch(ctx, thread, nil) {
		if err != nil {
			want(t, "it was cancelled", errors.Is(err, context.Canceled), true)
			want(t, "it is unavailable", errors.Is(err, tuskpoint.ErrUnavailable), false)
			break
		}
		events++
		cancel()
	}
	want(t, "the number of events", events, 1)

	late, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	var last error
	for _, err := range client.Watch(late, thread, nil) {
		last = err
	}
	wantError(t, last, tuskpoint.ErrDeadlineExceeded, "")
	want(t, "it is the context's", errors.Is(last, context.DeadlineExceeded), true)
}

func TestAWatchEndsWithItsClient(t *testing.T) {
	thread := newThread()
	save(t, dial(t), thread, map[string]any{"a": 1})
	client := dial(t)
	var last error
	for _, err := range client.Watch(within(t), thread, nil) {
		if last = err; err == nil {
			if err := client.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantError(t, last, tuskpoint.ErrClosed, "")
	_, err := client.Load(within(t), thread, "", nil)
	wantError(t, err, tuskpoint.ErrClosed, "")
}

func TestAReplayIsNarrowed(t *testing.T) {
	client, thread := dial(t), newThread()
	var ids []string
	for step := range 4 {
		ids = append(ids, save(t, client, thread, map[string]any{"step": step}))
	}
	part := collect(t, client.Replay(within(t), thread,
		&tuskpoint.ReplayOptions{From: ids[1], To: ids[2], View: tuskpoint.ViewEntry}))
	want(t, "the number", len(part), 2)
	want(t, "the first", part[0].ID, ids[1])
	want(t, "the channels of an entry", len(part[0].Channels), 0)
}

// TestAWatchOutlivesItsServers checks that the watch, an agent that saves all the while, and
// callers whose saves share its stream do not notice a drained server and a killed server, each
// replaced by a server with the same data.
func TestAWatchOutlivesItsServers(t *testing.T) {
	t.Parallel()
	const saves = 30
	server, thread := startServer(t), newThread()
	watcher, agent := dialTo(t, server.Target), dialTo(t, server.Target)
	ids := []string{save(t, agent, thread, map[string]any{"step": 0})}
	pauses := map[int]func() error{10: server.Stop, 20: server.Kill}

	var saving sync.WaitGroup
	saving.Add(1)
	others := []string{}
	crowd := func() {
		for range 8 {
			other := newThread()
			others = append(others, other)
			saving.Add(1)
			go func() {
				defer saving.Done()
				for step := range 5 {
					if _, err := agent.Save(t.Context(), other, map[string]any{"step": step}, nil); err != nil {
						t.Error(err)
					}
				}
			}()
		}
	}
	seen := make(chan int, saves)
	go func() {
		defer saving.Done()
		for step := 1; step < saves; step++ {
			if end := pauses[step]; end != nil {
				for <-seen < step {
				}
				crowd()
				if err := restart(server, end); err != nil {
					t.Error(err)
					return
				}
			}
			saved, err := agent.Save(t.Context(), thread, map[string]any{"step": step}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			ids = append(ids, saved.CheckpointID)
		}
	}()
	var got []string
	for event, err := range watcher.Watch(within(t), thread,
		&tuskpoint.WatchOptions{Kinds: []tuskpoint.EventKind{tuskpoint.CheckpointSaved}}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, event.Checkpoint.ID)
		seen <- len(got)
		if len(got) == saves {
			break
		}
	}
	saving.Wait()
	for i, id := range ids {
		want(t, "the event", got[i], id)
	}
	replayed := collect(t, watcher.Replay(within(t), thread, nil))
	want(t, "the number of checkpoints", len(replayed), saves)
	for _, other := range others {
		all := collect(t, watcher.List(within(t), other, nil))
		want(t, "the number of checkpoints of another", len(all), 5)
	}
}

func restart(server *servertest.Server, end func() error) error {
	if err := end(); err != nil {
		return err
	}
	return server.Restart()
}
