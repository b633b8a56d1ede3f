package tuskpoint_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"tuskpoint.dev/go/tuskpoint"
)

// traffic counts the bytes of messages in both directions.
type traffic struct{ bytes atomic.Int64 }

func (c *traffic) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *traffic) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *traffic) HandleConn(context.Context, stats.ConnStats)                       {}
func (c *traffic) HandleRPC(_ context.Context, event stats.RPCStats) {
	switch event := event.(type) {
	case *stats.InPayload:
		c.bytes.Add(int64(event.WireLength))
	case *stats.OutPayload:
		c.bytes.Add(int64(event.WireLength))
	}
}

func TestALoadAfterASaveMovesFewBytes(t *testing.T) {
	counted, thread := &traffic{}, newThread()
	counting := tuskpoint.WithDialOptions(grpc.WithStatsHandler(counted))
	client := dial(t, counting)
	state := map[string]any{"step": "1"}
	for _, name := range strings.Split("abcdefghijklmnop", "") {
		state[name] = strings.Repeat(name, 64<<10)
	}
	save(t, client, thread, state)
	state = maps.Clone(state)
	state["step"] = "2"
	save(t, client, thread, state)

	load := func(client *tuskpoint.Client) int64 {
		t.Helper()
		before := counted.bytes.Load()
		loaded := must(client.Load(within(t), thread, "", nil))(t)
		moved := counted.bytes.Load() - before
		stored := must(loaded.State())(t)
		want(t, "the number of channels", len(stored), len(state))
		for name, text := range state {
			want(t, name, string(stored[name]), fmt.Sprintf("%q", text))
		}
		return moved
	}
	if moved := load(client); moved > 10_000 {
		t.Errorf("a load after a save moves %d bytes", moved)
	}
	other := dial(t, counting)
	if first, second := load(other), load(other); first < 1<<20 || second > 10_000 {
		t.Errorf("loads move %d and %d bytes", first, second)
	}
	without := dial(t, counting, tuskpoint.WithValueCacheBytes(0))
	if first, second := load(without), load(without); min(first, second) < 1<<20 {
		t.Errorf("loads without kept values move %d and %d bytes", first, second)
	}
}

func TestWhatACallerDoesToALoadedValueStaysWithTheCaller(t *testing.T) {
	client, thread := dial(t), newThread()
	save(t, client, thread, map[string]any{"text": strings.Repeat("x", 5000)})
	for range 3 {
		loaded := must(client.Load(within(t), thread, "", nil))(t)
		data := loaded.Channels[0].Data
		want(t, "the text", string(data), `"`+strings.Repeat("x", 5000)+`"`)
		clear(data)
	}
}

func TestANumberOfBytesBelow0IsRefused(t *testing.T) {
	_, err := tuskpoint.Dial("", tuskpoint.WithValueCacheBytes(-1))
	wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
}

func TestACheckpointIsLoadedByItsIDAlone(t *testing.T) {
	client, thread := dial(t), newThread()
	root := save(t, client, thread, map[string]any{"n": 1})
	inner := must(client.Save(within(t), thread, map[string]any{"n": 2},
		&tuskpoint.SaveOptions{Namespace: "inner"}))(t).CheckpointID

	for id, namespace := range map[string]string{root: "", inner: "inner"} {
		loaded := must(client.Load(within(t), "", id, nil))(t)
		want(t, "the thread", loaded.ThreadID, thread)
		want(t, "the namespace", loaded.Namespace, namespace)
		want(t, "the ID", loaded.ID, id)
	}
	_, err := client.Load(within(t), "", root, &tuskpoint.LoadOptions{Namespace: "inner"})
	absent := wantError(t, err, tuskpoint.ErrNotFound, "CHECKPOINT_NOT_FOUND")
	want(t, "the ID", absent.Metadata["checkpoint_id"], root)
	_, err = client.Load(within(t), "", "", nil)
	wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
}

func TestSeveralThreadsThatHaveTheCheckpointAreNamed(t *testing.T) {
	client, thread := dial(t), newThread()
	id, threads := save(t, client, thread, map[string]any{"n": 1}), []string{thread}
	for range 5 {
		fork := must(client.Fork(within(t), thread, id, "", nil))(t)
		threads = append(threads, fork.NewThreadID)
		_, err := client.Load(within(t), "", id, nil)
		failure := wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
		named := 0
		for _, one := range threads {
			if strings.Contains(failure.Message, fmt.Sprintf("%q", one)) {
				named++
			}
		}
		want(t, "the number of named threads", named, min(5, len(threads)))
		want(t, "whether there are more", strings.Contains(failure.Message, ", ..."), len(threads) > 5)
	}
}

func TestAClockThatMadeNoStepNeedsNoAcceptance(t *testing.T) {
	step := must(dial(t).AcceptClock(within(t)))(t)
	want(t, "whether there is a step", step != nil, false)
}
