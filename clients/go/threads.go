package tuskpoint

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// GetThread describes a thread: its head, state, agent, retention and so on.
//
// Errors: [ErrNotFound] if there is no such thread, for a deleted one too.
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

	// State lists only threads in this state. The default is any.
	State tuskpointv1.ThreadState
}

// ListThreads yields the threads by ID; pages are fetched as needed. Options may be nil. The
// sequence ends with the first error.
func (c *Client) ListThreads(
	ctx context.Context, options *ThreadOptions,
) iter.Seq2[*tuskpointv1.Thread, error] {
	given := valueOf(options)
	begin := &tuskpointv1.ListThreadsRequest{
		AgentId: given.AgentID, Label: given.Label, State: given.State, PageSize: 1000,
	}
	return func(yield func(*tuskpointv1.Thread, error) bool) {
		request := proto.CloneOf(begin)
		for {
			page, err := c.threads.ListThreads(ctx, request)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, thread := range page.GetThreads() {
				if !yield(thread, nil) {
					return
				}
			}
			if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
				return
			}
		}
	}
}

// ChangeOptions are the settings of changes to whole threads.
type ChangeOptions struct {
	// Namespace of the checkpoint that is named; empty is the root. A deletion has none.
	Namespace string

	// Durability to wait for. The default is [Journaled].
	Durability Durability
}

// Delete deletes all checkpoints and writes of a thread, and returns how many checkpoints those
// were. A thread that does not exist is no error. Options may be nil.
func (c *Client) Delete(
	ctx context.Context, threadID string, options *ChangeOptions,
) (uint64, error) {
	answer, err := c.threads.DeleteThread(ctx, &tuskpointv1.DeleteThreadRequest{
		ThreadId: threadID, Durability: valueOf(options).Durability,
	})
	c.memory.forget(threadID)
	return answer.GetDeletedCheckpoints(), err
}

// Forked is a new thread that begins with a checkpoint of another.
type Forked struct {
	NewThreadID  string     // the new thread
	CheckpointID string     // its first checkpoint
	ForkedFrom   string     // what was forked, "thread:checkpoint"
	Durability   Durability // what was reached
}

// Fork makes a new thread that begins with a checkpoint of another; without an ID with the latest,
// and without a name for the thread, the server makes one. Options may be nil.
//
// Errors: [ErrNotFound] if there is no such checkpoint, [ErrAlreadyExists] if the new thread has
// checkpoints.
func (c *Client) Fork(
	ctx context.Context, threadID, checkpointID, newThreadID string, options *ChangeOptions,
) (*Forked, error) {
	given := valueOf(options)
	answer, err := c.threads.ForkThread(ctx, &tuskpointv1.ForkThreadRequest{
		Ref:         refOf(threadID, given.Namespace, checkpointID),
		NewThreadId: newThreadID,
		Durability:  given.Durability,
	})
	if err != nil {
		return nil, err
	}
	return &Forked{
		NewThreadID:  answer.GetRef().GetThreadId(),
		CheckpointID: answer.GetRef().GetCheckpointId(),
		ForkedFrom:   answer.GetForkedFrom(),
		Durability:   answer.GetDurability(),
	}, nil
}

// RollbackOptions are the settings of a rollback.
type RollbackOptions struct {
	// Namespace of the checkpoint; empty is the root.
	Namespace string

	// ExpectedHead is the ID that the latest must have, if not empty; otherwise nothing is changed
	// and the error is [ErrConflict].
	ExpectedHead string

	// Durability to wait for. The default is [Journaled].
	Durability Durability
}

// RolledBack is a checkpoint that has the state of an earlier one.
type RolledBack struct {
	CheckpointID   string     // the checkpoint that was appended
	RolledBackFrom string     // what was rolled back to, "thread:checkpoint"
	Durability     Durability // what was reached
}

// Rollback appends a checkpoint that has the state of an earlier one. Nothing is removed. Options
// may be nil.
//
// Errors: [ErrNotFound] if there is no such checkpoint, [ErrConflict] if the latest is not the
// expected head.
func (c *Client) Rollback(
	ctx context.Context, threadID, checkpointID string, options *RollbackOptions,
) (*RolledBack, error) {
	given := valueOf(options)
	request := &tuskpointv1.RollbackThreadRequest{
		Ref: refOf(threadID, given.Namespace, checkpointID), Durability: given.Durability,
	}
	if given.ExpectedHead != "" {
		request.ExpectedHead = &given.ExpectedHead
	}
	answer, err := c.threads.RollbackThread(ctx, request)
	if err != nil {
		return nil, err
	}
	return &RolledBack{
		CheckpointID:   answer.GetRef().GetCheckpointId(),
		RolledBackFrom: answer.GetRolledBackFrom(),
		Durability:     answer.GetDurability(),
	}, nil
}
