package tuskpoint

import (
	"cmp"
	"context"

	"tuskpoint.dev/go/tuskpoint/internal/wire"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// Forked is a new thread that starts with a checkpoint of another thread.
type Forked struct {
	NewThreadID  string     // the new thread
	CheckpointID string     // first checkpoint of the new thread
	ForkedFrom   string     // the forked checkpoint, "thread:checkpoint"
	Durability   Durability // durability that the fork reached
}

// Fork creates a new thread that starts with a checkpoint of another thread; without an ID, with
// the latest checkpoint. Without a name for the thread, the server generates one. Options may be
// nil.
//
// Errors: [ErrNotFound] if the checkpoint does not exist, [ErrAlreadyExists] if the new thread has
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

	// ExpectedHead is the ID that the latest checkpoint must have, if not empty; otherwise nothing
	// is changed and the error is [ErrConflict].
	ExpectedHead string

	// Durability to wait for. The default is [Journaled].
	Durability Durability
}

// RolledBack is a checkpoint that has the state of an earlier checkpoint.
type RolledBack struct {
	CheckpointID   string     // the appended checkpoint
	RolledBackFrom string     // the checkpoint that the thread was rolled back to, "thread:checkpoint"
	Durability     Durability // durability that the rollback reached
}

// Rollback appends a checkpoint that has the state of an earlier checkpoint. Nothing is removed.
// Options may be nil.
//
// Errors: [ErrNotFound] if the checkpoint does not exist, [ErrConflict] if the latest checkpoint is
// not the expected head.
func (c *Client) Rollback(
	ctx context.Context, threadID, checkpointID string, options *RollbackOptions,
) (*RolledBack, error) {
	given := valueOf(options)
	request := &tuskpointv1.RollbackThreadRequest{
		Ref: refOf(threadID, given.Namespace, checkpointID), Durability: given.Durability,
		LeaseId: c.held.of(threadID),
	}
	if given.ExpectedHead != "" {
		request.ExpectedHead = &given.ExpectedHead
	}
	answer, err := c.threads.RollbackThread(ctx, request)
	c.memory.forget(threadID)
	if err != nil {
		return nil, err
	}
	return &RolledBack{
		CheckpointID:   answer.GetRef().GetCheckpointId(),
		RolledBackFrom: answer.GetRolledBackFrom(),
		Durability:     answer.GetDurability(),
	}, nil
}

// Lineage returns the ancestors and descendants of a thread.
//
// Errors: [ErrNotFound] if the thread does not exist.
func (c *Client) Lineage(
	ctx context.Context, threadID string,
) (*tuskpointv1.GetLineageResponse, error) {
	return c.threads.GetLineage(ctx, &tuskpointv1.GetLineageRequest{ThreadId: threadID})
}

// DiffOptions are the settings of a comparison.
type DiffOptions struct {
	// ToThreadID is the thread of the second side. Empty: the same thread.
	ToThreadID string

	// Namespace of both checkpoints; empty is the root.
	Namespace string

	// MaxChanges is the largest number of changes to return, up to 10,000; 0 means 1,000.
	MaxChanges uint32
}

// Diff compares the states of two checkpoints in the JSON view; without the second ID, with the
// latest checkpoint. Options may be nil.
//
// Errors: [ErrNotFound] if a checkpoint does not exist.
func (c *Client) Diff(
	ctx context.Context, threadID, fromCheckpointID, toCheckpointID string, options *DiffOptions,
) (*tuskpointv1.DiffCheckpointsResponse, error) {
	given := valueOf(options)
	return c.threads.DiffCheckpoints(ctx, &tuskpointv1.DiffCheckpointsRequest{
		From:       refOf(threadID, given.Namespace, fromCheckpointID),
		To:         refOf(cmp.Or(given.ToThreadID, threadID), given.Namespace, toCheckpointID),
		MaxChanges: given.MaxChanges,
	})
}

// VerifyOptions are the settings of a verification.
type VerifyOptions struct {
	// OnVerdict is called with the verdict on each checkpoint as it arrives, if not nil.
	OnVerdict func(*tuskpointv1.CheckpointVerdict)
}

// Verification is the result of reading a whole thread back from the blob store.
type Verification struct {
	// OK: at least one checkpoint passed, none failed, the newest catalog leads to the recorded
	// checkpoints, and nothing is wrong in the journal.
	OK bool

	// Passed, Failed, Unverified and Retracted count the checkpoints: with stored bytes that match
	// the recorded hash; with bytes that differ or are missing; not certified; deleted.
	Passed, Failed, Unverified, Retracted uint64

	// ChainDetail is the problem of the chain from the catalog to the segments, for people; empty
	// if the chain is intact.
	ChainDetail string

	// JournalDetails are the problems of the thread's rows and values in the server's journal, for
	// people, one sentence each; at most 100.
	JournalDetails []string

	// Failures are the verdicts on the failed checkpoints.
	Failures []*tuskpointv1.CheckpointVerdict
}

// Verify reads every stored checkpoint of a thread back from the blob store and checks it. Options
// may be nil.
//
// Errors: [ErrNotFound] if the thread does not exist, [ErrUnavailable] if the server stopped during
// the verification: verify again.
func (c *Client) Verify(
	ctx context.Context, threadID string, options *VerifyOptions,
) (*Verification, error) {
	given := valueOf(options)
	stream := &verifyStream{request: &tuskpointv1.VerifyThreadRequest{ThreadId: threadID}}
	start := func() *verifyStream { return stream }
	verdicts := follow(ctx, c.calls, c.calls.times.stream, false, c.threads.VerifyThread, start)
	verification := &Verification{}
	for verdict, err := range verdicts {
		if err != nil {
			return nil, err
		}
		if verdict.GetVerdict() == tuskpointv1.Verdict_VERDICT_FAIL {
			verification.Failures = append(verification.Failures, verdict)
		}
		if given.OnVerdict != nil {
			given.OnVerdict(verdict)
		}
	}
	total := stream.total
	verification.OK, verification.ChainDetail = total.GetOk(), total.GetChainDetail()
	verification.JournalDetails = total.GetJournalDetails()
	verification.Passed, verification.Failed = total.GetPassed(), total.GetFailed()
	verification.Unverified, verification.Retracted = total.GetUnverified(), total.GetRetracted()
	return verification, nil
}

// verifyStream is the stream of a verification: a verdict on each checkpoint, then the total.
type verifyStream struct {
	request *tuskpointv1.VerifyThreadRequest
	total   *tuskpointv1.VerificationTotal
}

func (c *verifyStream) nextRequest() *tuskpointv1.VerifyThreadRequest { return c.request }

func (c *verifyStream) add(
	frame *tuskpointv1.VerifyThreadResponse,
) (*tuskpointv1.CheckpointVerdict, bool, error) {
	if frame.GetTotal() != nil {
		c.total = frame.GetTotal()
	}
	return frame.GetVerdict(), frame.GetVerdict() != nil, nil
}

func (c *verifyStream) end() error {
	if c.total == nil {
		return wire.Breach("the stream ended without a total")
	}
	return nil
}
