package tuskpoint

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// LoadOptions are the settings of a load.
type LoadOptions struct {
	// Namespace of the thread; empty is the root. In a load without a thread, empty matches any
	// namespace.
	Namespace string

	// View is how much of the checkpoint to return. The default is [ViewFull].
	View View

	// Source is where the server reads from. The default is [SourceAny].
	Source Source
}

// Load loads one checkpoint exactly; without an ID, the latest of the thread. Without a thread, it
// loads the checkpoint from the only thread that has it. Options may be nil.
//
// Errors: [ErrNotFound] if the checkpoint does not exist, [ErrInvalidRequest] if neither a thread
// nor an ID is named or if several threads have the checkpoint (forks and copies keep IDs),
// [ErrPreconditionFailed] if the source is the blob store and the checkpoint is not certified,
// [ErrDataLoss] if its blob does not match the recorded hash.
func (c *Client) Load(
	ctx context.Context, threadID, checkpointID string, options *LoadOptions,
) (*Checkpoint, error) {
	given := valueOf(options)
	ref := refOf(threadID, given.Namespace, checkpointID)
	if threadID == "" {
		var err error
		if ref, err = c.find(ctx, checkpointID, given.Namespace); err != nil {
			return nil, err
		}
	}
	checkpoint, err := c.getCheckpoint(ctx, ref, given.View, given.Source)
	if err != nil {
		return nil, err
	}
	return checkpointOf(checkpoint), nil
}

const maxNamedThreads = 5 // in an error message

// find returns the only checkpoint with an ID, in any thread. An empty namespace matches any
// namespace.
func (c *Client) find(
	ctx context.Context, checkpointID, namespace string,
) (*tuskpointv1.CheckpointRef, error) {
	if checkpointID == "" {
		return nil, invalidField("thread_id", "pass a thread ID, a checkpoint ID, or both")
	}
	options := &ListOptions{AllThreads: true, CheckpointID: checkpointID, Limit: maxNamedThreads + 1}
	if namespace != "" {
		options.Namespace = &namespace
	}
	var refs []*tuskpointv1.CheckpointRef
	for checkpoint, err := range c.List(ctx, "", options) {
		if err != nil {
			return nil, err
		}
		refs = append(refs, refOf(checkpoint.ThreadID, checkpoint.Namespace, checkpoint.ID))
	}
	if len(refs) == 1 {
		return refs[0], nil
	}
	if len(refs) == 0 {
		return nil, &Error{
			Status:   codes.NotFound,
			Reason:   "CHECKPOINT_NOT_FOUND",
			Message:  fmt.Sprintf("checkpoint %q not found in any thread; List lists all checkpoints", checkpointID),
			Metadata: map[string]string{"checkpoint_id": checkpointID},
			kind:     notFound,
		}
	}
	names := make([]string, 0, len(refs))
	for _, ref := range refs[:min(len(refs), maxNamedThreads)] {
		name := strconv.Quote(ref.GetThreadId())
		if ref.GetCheckpointNs() != "" {
			name += fmt.Sprintf(" (namespace %q)", ref.GetCheckpointNs())
		}
		names = append(names, name)
	}
	if len(refs) > maxNamedThreads {
		names = append(names, "...")
	}
	return nil, invalidField("thread_id", fmt.Sprintf("checkpoint %q is in %s: name one of these threads",
		checkpointID, strings.Join(names, ", ")))
}

// ListOptions are the settings of a listing.
type ListOptions struct {
	// AllThreads lists the checkpoints of all threads; the thread ID must then be empty.
	AllThreads bool

	// Namespace lists only this namespace; "" is the root. nil: all namespaces.
	Namespace *string

	// CheckpointID lists only this ID, if not empty. Several threads may have the ID: forks keep
	// IDs.
	CheckpointID string

	// Before lists only IDs below this one, if not empty.
	Before string

	// Filter lists only checkpoints whose metadata has all of these entries.
	Filter map[string]any

	// Label lists only checkpoints with this label, if not empty.
	Label string

	// Limit is the largest number of checkpoints to list; 0 lists all.
	Limit uint32

	// View is how much of each checkpoint to return. The default is [ViewEntry].
	View View

	// Source is where the server reads from. The default is [SourceAny].
	Source Source
}

// List yields the checkpoints of a thread, latest first; none if the thread does not exist. Options
// may be nil. The sequence ends with the first error.
func (c *Client) List(
	ctx context.Context, threadID string, options *ListOptions,
) iter.Seq2[*Checkpoint, error] {
	given := valueOf(options)
	filter, err := encodeObject("filter", given.Filter)
	if err == nil && given.AllThreads != (threadID == "") {
		err = invalidField("thread_id", "pass a thread ID, or set AllThreads")
	}
	if err != nil {
		return failed[*Checkpoint](err)
	}
	request := &tuskpointv1.ListCheckpointsRequest{
		CheckpointNs: given.Namespace,
		CheckpointId: given.CheckpointID,
		Before:       given.Before,
		FilterJson:   filter,
		Label:        given.Label,
		View:         cmp.Or(given.View, ViewEntry),
		Source:       given.Source,
	}
	if !given.AllThreads {
		request.ThreadId = &threadID
	}
	if given.Limit > 0 {
		request.Limit = &given.Limit
	}
	start := func() *listStream { return &listStream{request: request} }
	checkpoints := follow(ctx, c.calls, c.calls.times.stream, false, c.checkpoints.ListCheckpoints, start)
	return mapped(checkpoints, wholeCheckpoint)
}

// LabelOptions are the settings of [Client.SetLabel].
type LabelOptions struct {
	// Namespace of the thread; empty is the root.
	Namespace string

	// Durability to wait for. The default is [Journaled].
	Durability Durability
}

// SetLabel sets the label of a checkpoint, or clears it with an empty label; without an ID, of the
// latest checkpoint. It returns the checkpoint's ID. Options may be nil.
//
// Errors: [ErrNotFound] if the checkpoint does not exist.
func (c *Client) SetLabel(
	ctx context.Context, threadID, checkpointID, label string, options *LabelOptions,
) (string, error) {
	given := valueOf(options)
	answer, err := c.checkpoints.SetLabel(ctx, &tuskpointv1.SetLabelRequest{
		Ref:        refOf(threadID, given.Namespace, checkpointID),
		Label:      label,
		Durability: given.Durability,
	})
	return answer.GetRef().GetCheckpointId(), err
}

// getCheckpoint returns a checkpoint of any size, every value inline. The server leaves out values
// that the client has in its cache.
func (c *Client) getCheckpoint(
	ctx context.Context, ref *tuskpointv1.CheckpointRef, view View, source Source,
) (*tuskpointv1.Checkpoint, error) {
	view, source = cmp.Or(view, ViewFull), cmp.Or(source, SourceAny)
	if view != ViewFull || source != SourceAny {
		return c.requestCheckpoint(ctx, ref, view, source, nil)
	}
	held := c.values.heldFor(placeOf(ref))
	checkpoint, err := c.requestCheckpoint(ctx, ref, view, source, held.digests())
	if err != nil {
		return nil, err
	}
	if err := held.fill(checkpoint); err != nil {
		return nil, err
	}
	c.values.loaded(checkpoint, held)
	return checkpoint, nil
}

// requestCheckpoint returns a checkpoint of any size, with all values that are not in the cache.
func (c *Client) requestCheckpoint(
	ctx context.Context, ref *tuskpointv1.CheckpointRef, view View, source Source, held [][]byte,
) (*tuskpointv1.Checkpoint, error) {
	get := &tuskpointv1.GetCheckpointRequest{Ref: ref, View: view, Source: source, HeldDigests: held}
	checkpoint, err := c.getSmall(ctx, get)
	if !isReason(err, "CHECKPOINT_TOO_LARGE") {
		return checkpoint, err
	}
	request := &tuskpointv1.LoadCheckpointRequest{Ref: ref, View: view, Source: source, HeldDigests: held}
	start := func() *loadStream { return &loadStream{request: request} }
	whole := follow(ctx, c.calls, c.calls.times.stream, false, c.checkpoints.LoadCheckpoint, start)
	var loaded *tuskpointv1.Checkpoint
	for checkpoint, err := range whole {
		if err != nil {
			return nil, err
		}
		loaded = checkpoint
	}
	return loaded, nil
}

func wholeCheckpoint(message *tuskpointv1.Checkpoint) (*Checkpoint, bool) {
	return checkpointOf(message), true
}

func refOf(threadID, namespace, checkpointID string) *tuskpointv1.CheckpointRef {
	return &tuskpointv1.CheckpointRef{
		ThreadId: threadID, CheckpointNs: namespace, CheckpointId: checkpointID,
	}
}

// valueOf returns the options, or the zero value for nil.
func valueOf[O any](options *O) O {
	if options == nil {
		var none O
		return none
	}
	return *options
}

// failed returns a sequence of one error.
func failed[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}
