package tuskpoint

import (
	"context"
	"iter"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// batch is the largest number of threads, runs or entries in one request or page.
const batch = 1000

// GetThread describes a thread: its head, state, agent, retention and so on. Question is what the
// thread waits for, Failure why it failed, and Summary what happened last.
//
// Errors: [ErrNotFound] if the thread does not exist or was deleted.
func (c *Client) GetThread(ctx context.Context, threadID string) (*tuskpointv1.Thread, error) {
	answer, err := c.threads.GetThread(ctx, &tuskpointv1.GetThreadRequest{ThreadId: threadID})
	return answer.GetThread(), err
}

// ThreadOptions are the settings of [Client.ListThreads].
type ThreadOptions struct {
	// AgentID lists only threads of this agent, if not empty.
	AgentID string

	// Label lists only threads that have a checkpoint with this label, if not empty.
	Label string

	// State lists only threads in this state. The default is any state.
	State tuskpointv1.ThreadState

	// ChangedAfter lists only threads with their last change at this time or later, if not zero.
	ChangedAfter time.Time

	// ChangedBefore lists only threads with their last change before this time, if not zero.
	ChangedBefore time.Time

	// LatestFirst lists by the time of the last change, latest first. A thread that changes during
	// the listing may be missing.
	LatestFirst bool
}

// ListThreads yields the threads, each with its Question, Failure and Summary as in
// [Client.GetThread]; pages are fetched as needed. Options may be nil. The sequence ends with the
// first error.
func (c *Client) ListThreads(
	ctx context.Context, options *ThreadOptions,
) iter.Seq2[*tuskpointv1.Thread, error] {
	given := valueOf(options)
	begin := &tuskpointv1.ListThreadsRequest{
		AgentId: given.AgentID, Label: given.Label, State: given.State, PageSize: batch,
	}
	if !given.ChangedAfter.IsZero() {
		begin.ChangedAfter = timestamppb.New(given.ChangedAfter)
	}
	if !given.ChangedBefore.IsZero() {
		begin.ChangedBefore = timestamppb.New(given.ChangedBefore)
	}
	if given.LatestFirst {
		begin.Order = tuskpointv1.ThreadOrder_THREAD_ORDER_LATEST
	}
	return pages(func(token string) ([]*tuskpointv1.Thread, string, error) {
		request := proto.CloneOf(begin)
		request.PageToken = token
		page, err := c.threads.ListThreads(ctx, request)
		return page.GetThreads(), page.GetNextPageToken(), err
	})
}

// pages yields the items of all pages: fetch returns the items of a page and the token of the next
// page, which is empty on the last page.
func pages[T any](fetch func(token string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for token, first := "", true; first || token != ""; first = false {
			items, next, err := fetch(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			token = next
		}
	}
}

// ChangeOptions are the settings of changes to threads.
type ChangeOptions struct {
	// Namespace of the named checkpoint; empty is the root. Changes of whole threads ignore it.
	Namespace string

	// Durability to wait for. The default is [Journaled].
	Durability Durability
}

// Delete deletes all checkpoints and writes of a thread, and returns how many checkpoints the
// thread had. A thread that does not exist is not an error. Options may be nil.
func (c *Client) Delete(
	ctx context.Context, threadID string, options *ChangeOptions,
) (uint64, error) {
	answer, err := c.threads.DeleteThread(ctx, &tuskpointv1.DeleteThreadRequest{
		ThreadId: threadID, Durability: valueOf(options).Durability,
	})
	c.memory.forget(threadID)
	return answer.GetDeletedCheckpoints(), err
}

// SetRetention sets how long a thread is kept after its last change; the server then deletes the
// thread. The time is in whole seconds, at least one; 0 keeps the thread. Options may be nil.
//
// Errors: [ErrNotFound] if the thread does not exist.
func (c *Client) SetRetention(
	ctx context.Context, threadID string, retention time.Duration, options *ChangeOptions,
) error {
	request := &tuskpointv1.SetRetentionRequest{
		ThreadId: threadID, Durability: valueOf(options).Durability,
	}
	if retention != 0 {
		request.Retention = durationpb.New(retention)
	}
	_, err := c.threads.SetRetention(ctx, request)
	return err
}

// SetSearchable sets whether search finds a thread's checkpoints; by default search finds them.
// Forks, copies and restores of a thread that is not searchable are not searchable either, until
// they are made searchable. Options may be nil.
//
// Errors: [ErrNotFound] if the thread does not exist.
func (c *Client) SetSearchable(
	ctx context.Context, threadID string, searchable bool, options *ChangeOptions,
) error {
	_, err := c.threads.SetSearchable(ctx, &tuskpointv1.SetSearchableRequest{
		ThreadId: threadID, Searchable: searchable, Durability: valueOf(options).Durability,
	})
	return err
}

// Copy copies a thread into a thread without checkpoints, and returns how many checkpoints were
// copied. Options may be nil.
//
// Errors: [ErrNotFound] if the thread does not exist, [ErrAlreadyExists] if the new thread has
// checkpoints.
func (c *Client) Copy(
	ctx context.Context, threadID, newThreadID string, options *ChangeOptions,
) (uint64, error) {
	answer, err := c.threads.CopyThread(ctx, &tuskpointv1.CopyThreadRequest{
		SourceThreadId: threadID, TargetThreadId: newThreadID, Durability: valueOf(options).Durability,
	})
	return answer.GetCopiedCheckpoints(), err
}

// PruneOptions are the settings of [Client.Prune].
type PruneOptions struct {
	// KeepNothing deletes all checkpoints. The default keeps the latest checkpoint of each
	// namespace and all data to rebuild it.
	KeepNothing bool

	// Durability to wait for. The default is [Journaled].
	Durability Durability
}

// Prune deletes old checkpoints of threads, and returns how many. Threads that do not exist are
// skipped. Threads are pruned one after another, up to the first error. Options may be nil.
func (c *Client) Prune(
	ctx context.Context, threadIDs []string, options *PruneOptions,
) (uint64, error) {
	given := valueOf(options)
	strategy := tuskpointv1.PruneStrategy_PRUNE_STRATEGY_KEEP_LATEST
	if given.KeepNothing {
		strategy = tuskpointv1.PruneStrategy_PRUNE_STRATEGY_DELETE_ALL
	}
	deleted := uint64(0)
	for chunk := range slices.Chunk(threadIDs, batch) {
		answer, err := c.threads.PruneThreads(ctx, &tuskpointv1.PruneThreadsRequest{
			ThreadIds: chunk, Strategy: strategy, Durability: given.Durability,
		})
		if err != nil {
			return deleted, err
		}
		deleted += answer.GetDeletedCheckpoints()
	}
	return deleted, nil
}

// DeleteRuns deletes the checkpoints whose metadata has one of these values of run_id, and returns
// how many. Options may be nil.
func (c *Client) DeleteRuns(
	ctx context.Context, runIDs []string, options *ChangeOptions,
) (uint64, error) {
	deleted := uint64(0)
	for chunk := range slices.Chunk(runIDs, batch) {
		answer, err := c.threads.DeleteRuns(ctx, &tuskpointv1.DeleteRunsRequest{
			RunIds: chunk, Durability: valueOf(options).Durability,
		})
		if err != nil {
			return deleted, err
		}
		deleted += answer.GetDeletedCheckpoints()
	}
	return deleted, nil
}

// Manifest yields the checkpoints of a thread that the newest catalog leads to, by namespace and
// checkpoint ID. The sequence ends with the first error, such as [ErrNotFound] if the thread does
// not exist.
func (c *Client) Manifest(
	ctx context.Context, threadID string,
) iter.Seq2[*tuskpointv1.ManifestEntry, error] {
	return pages(func(token string) ([]*tuskpointv1.ManifestEntry, string, error) {
		page, err := c.threads.GetManifest(ctx, &tuskpointv1.GetManifestRequest{
			ThreadId: threadID, PageSize: batch, PageToken: token,
		})
		return page.GetEntries(), page.GetNextPageToken(), err
	})
}

// StoreManifest stores a thread's manifest as a blob of its own and returns its location; nil if no
// checkpoint of the thread is certified. `tuskpoint audit manifest` and `tuskpoint-server recover`
// read the blob; nothing renews it.
//
// Errors: [ErrNotFound] if the thread does not exist.
func (c *Client) StoreManifest(ctx context.Context, threadID string) (*Location, error) {
	answer, err := c.threads.GetManifest(ctx, &tuskpointv1.GetManifestRequest{
		ThreadId: threadID, PageSize: 1, Store: true,
	})
	return locationOf(answer.GetManifest()), err
}
