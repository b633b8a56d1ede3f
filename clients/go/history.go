package tuskpoint

import (
	"cmp"
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// EventKind is the kind of an event on a thread.
type EventKind = tuskpointv1.EventKind

const (
	// CheckpointSaved: a checkpoint was saved, or saved again.
	CheckpointSaved = tuskpointv1.EventKind_EVENT_KIND_CHECKPOINT_SAVED

	// WritesSaved: pending writes were saved.
	WritesSaved = tuskpointv1.EventKind_EVENT_KIND_WRITES_SAVED

	// LabelSet: a label was set or cleared.
	LabelSet = tuskpointv1.EventKind_EVENT_KIND_LABEL_SET

	// CheckpointsDeleted: checkpoints were deleted.
	CheckpointsDeleted = tuskpointv1.EventKind_EVENT_KIND_CHECKPOINTS_DELETED

	// ThreadDeleted: the thread was deleted; the last event of an incarnation.
	ThreadDeleted = tuskpointv1.EventKind_EVENT_KIND_THREAD_DELETED

	// RetentionSet: the thread's retention was set.
	RetentionSet = tuskpointv1.EventKind_EVENT_KIND_RETENTION_SET

	// SearchableSet: the thread became searchable, or not searchable.
	SearchableSet = tuskpointv1.EventKind_EVENT_KIND_SEARCHABLE_SET

	// HandedOff: a checkpoint was handed off.
	HandedOff = tuskpointv1.EventKind_EVENT_KIND_HANDED_OFF

	// Recovered: the thread was recovered from the blob store.
	Recovered = tuskpointv1.EventKind_EVENT_KIND_RECOVERED

	// CheckpointCertified: every change up to the event's Sequence is certified.
	CheckpointCertified = tuskpointv1.EventKind_EVENT_KIND_CERTIFIED

	// Progress: no change happened; everything up to the cursor was delivered.
	Progress = tuskpointv1.EventKind_EVENT_KIND_PROGRESS
)

// ReplayOptions are the settings of a replay.
type ReplayOptions struct {
	// Namespace replays only this namespace; "" is the root. nil: all namespaces, merged by ID.
	Namespace *string

	// From is the first checkpoint ID to yield, if not empty.
	From string

	// To is the last checkpoint ID to yield, if not empty.
	To string

	// View is how much of each checkpoint to return. The default is [ViewFull].
	View View

	// Source is where the server reads from. The default is [SourceAny].
	Source Source
}

// Replay yields the checkpoints of a thread, oldest first. Options may be nil.
//
// The checkpoints are streamed: neither side keeps more than a few in memory. After a lost
// connection or a restart of the server the replay resumes after the last checkpoint that was
// yielded. The sequence ends with the first error, such as [ErrNotFound] if the thread does not
// exist.
func (c *Client) Replay(
	ctx context.Context, threadID string, options *ReplayOptions,
) iter.Seq2[*Checkpoint, error] {
	given := valueOf(options)
	request := &tuskpointv1.ReplayThreadRequest{
		ThreadId:         threadID,
		CheckpointNs:     given.Namespace,
		FromCheckpointId: given.From,
		ToCheckpointId:   given.To,
		View:             cmp.Or(given.View, ViewFull),
		Source:           given.Source,
	}
	start := func() *replayStream { return &replayStream{request: request} }
	checkpoints := follow(ctx, c.calls, c.calls.times.stream, true, c.history.ReplayThread, start)
	return mapped(checkpoints, wholeCheckpoint)
}

// WatchOptions are the settings of a watch.
type WatchOptions struct {
	// Cursor: deliver the events after this cursor. Empty: from the start of the thread's current
	// incarnation.
	Cursor []byte

	// Kinds delivers only these kinds of events; empty: all.
	Kinds []EventKind

	// View is how much of a saved checkpoint to return. The default is [ViewFull]. With [ViewStep],
	// events of other kinds have the step of their checkpoint too.
	View View

	// Progress is the silence, 1 second or more, after which an event of the kind [Progress] is
	// yielded, so that the caller has a newer cursor and a sign of life. 0: no such event is
	// yielded.
	Progress time.Duration

	// FromNow, without a cursor, yields only changes after the call.
	FromNow bool
}

// Event is one change of a thread.
type Event struct {
	// Kind is the kind of the change.
	Kind EventKind

	// Cursor is the position after which a watch with this cursor continues.
	Cursor []byte

	// Sequence is the position in the thread, which rises by 1 with each change;
	// [CheckpointCertified] and [Progress] are not changes.
	Sequence uint64

	// Incarnation of the thread.
	Incarnation uint64

	// Checkpoint is the changed checkpoint, in its state at delivery. A checkpoint that no longer
	// existed has only its identity. nil if the change has no checkpoint.
	Checkpoint *Checkpoint

	// Deleted is the number of checkpoints that a deletion removed.
	Deleted uint64

	// Time of the change.
	Time time.Time
}

// Watch yields the changes of a thread in order: past changes, then each new change as it happens.
// Options may be nil.
//
// A watch ends with the context, or with an error. After a lost connection, a shutdown or a crash
// of the server the watch resumes after the last event that was yielded, without gap or duplicate,
// if a server is back within minutes. To continue in another process, or after an error, start with
// the cursor of the last event.
//
// Errors: [ErrNotFound] if the thread does not exist and no cursor was given, [ErrCursorCompacted]
// if events after the cursor were compacted, [ErrUnavailable] if no server could be reached for
// minutes.
func (c *Client) Watch(
	ctx context.Context, threadID string, options *WatchOptions,
) iter.Seq2[*Event, error] {
	given := valueOf(options)
	if given.Progress != 0 && given.Progress < time.Second {
		return failed[*Event](invalidField("progress", "it must be 1 second or more, or 0"))
	}
	start := func() *watchStream {
		request := &tuskpointv1.WatchThreadRequest{
			ThreadId: threadID, Cursor: given.Cursor, Kinds: given.Kinds,
			View: cmp.Or(given.View, ViewFull), FromNow: given.FromNow,
		}
		if given.Progress > 0 {
			request.ProgressInterval = durationpb.New(given.Progress)
		}
		return &watchStream{request: request}
	}
	// No deadline: a watch has no end.
	events := follow(ctx, c.calls, 0, true, c.history.WatchThread, start)
	return mapped(events, func(message *tuskpointv1.ThreadEvent) (*Event, bool) {
		return eventOf(message), given.Progress > 0 || message.GetKind() != Progress
	})
}

func eventOf(message *tuskpointv1.ThreadEvent) *Event {
	event := &Event{
		Kind:        message.GetKind(),
		Cursor:      message.GetCursor(),
		Sequence:    message.GetSeq(),
		Incarnation: message.GetIncarnation(),
		Deleted:     message.GetDeletedCheckpoints(),
		Time:        timeOf(message.GetTime()),
	}
	if message.GetCheckpoint() != nil {
		event.Checkpoint = checkpointOf(message.GetCheckpoint())
	}
	return event
}
