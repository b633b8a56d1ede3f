package tuskpoint

import (
	"context"
	"iter"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// SnapshotOptions are the settings of [Client.CreateSnapshot].
type SnapshotOptions struct {
	// SessionID is the session of the application.
	SessionID string

	// Hostname is the host that the application runs on.
	Hostname string

	// WorkingDirectory is the working directory of the application.
	WorkingDirectory string

	// Metadata is a JSON object to save with the snapshot.
	Metadata map[string]any

	// Durability to wait for. The default is [Journaled].
	Durability Durability
}

// SnapshotFilter selects the snapshots that match all non-empty fields.
type SnapshotFilter struct {
	SessionID        string // session of the application
	Hostname         string // host that the application ran on
	WorkingDirectory string // working directory of the application
}

// CreateSnapshot captures the latest checkpoints of 1 to 1,000 threads at one instant. The snapshot
// keeps the captured checkpoints when the threads are pruned or deleted. Options may be nil.
//
// Errors: [ErrNotFound] if a thread does not exist, or has no root checkpoint.
func (c *Client) CreateSnapshot(
	ctx context.Context, threadIDs []string, options *SnapshotOptions,
) (*tuskpointv1.Snapshot, error) {
	given := valueOf(options)
	metadata, err := encodeObject("metadata", given.Metadata)
	if err != nil {
		return nil, err
	}
	answer, err := c.snapshots.CreateSnapshot(ctx, &tuskpointv1.CreateSnapshotRequest{
		ThreadIds:        threadIDs,
		SessionId:        given.SessionID,
		Hostname:         given.Hostname,
		WorkingDirectory: given.WorkingDirectory,
		MetadataJson:     metadata,
		Durability:       given.Durability,
	})
	return answer.GetSnapshot(), err
}

// GetSnapshot returns a snapshot.
//
// Errors: [ErrNotFound] if the snapshot does not exist.
func (c *Client) GetSnapshot(ctx context.Context, snapshotID string) (*tuskpointv1.Snapshot, error) {
	answer, err := c.snapshots.GetSnapshot(ctx, &tuskpointv1.GetSnapshotRequest{SnapshotId: snapshotID})
	return answer.GetSnapshot(), err
}

// LatestSnapshot returns the newest snapshot. The filter may be nil.
//
// Errors: [ErrNotFound] if no snapshot matches.
func (c *Client) LatestSnapshot(
	ctx context.Context, filter *SnapshotFilter,
) (*tuskpointv1.Snapshot, error) {
	given := valueOf(filter)
	answer, err := c.snapshots.GetLatestSnapshot(ctx, &tuskpointv1.GetLatestSnapshotRequest{
		SessionId: given.SessionID, Hostname: given.Hostname, WorkingDirectory: given.WorkingDirectory,
	})
	return answer.GetSnapshot(), err
}

// ListSnapshots yields snapshots, newest first; pages are fetched as needed. The filter may be nil.
// The sequence ends with the first error.
func (c *Client) ListSnapshots(
	ctx context.Context, filter *SnapshotFilter,
) iter.Seq2[*tuskpointv1.Snapshot, error] {
	given := valueOf(filter)
	return pages(func(token string) ([]*tuskpointv1.Snapshot, string, error) {
		page, err := c.snapshots.ListSnapshots(ctx, &tuskpointv1.ListSnapshotsRequest{
			SessionId:        given.SessionID,
			Hostname:         given.Hostname,
			WorkingDirectory: given.WorkingDirectory,
			PageSize:         batch,
			PageToken:        token,
		})
		return page.GetSnapshots(), page.GetNextPageToken(), err
	})
}

// RestoreOptions are the settings of [Client.RestoreSnapshot].
type RestoreOptions struct {
	// Rollback rolls each member's own thread back. The default creates a new thread for each
	// member.
	Rollback bool

	// SkipDeleted skips members whose thread was deleted, instead of failing with [ErrNotFound]. It
	// has an effect only with Rollback.
	SkipDeleted bool

	// Durability to wait for. The default is [Journaled].
	Durability Durability
}

// RestoreSnapshot restores every member of a snapshot, or none. It returns the restored
// checkpoints, in the order of the snapshot's members. Options may be nil.
//
// Errors: [ErrNotFound] if the snapshot does not exist, or a thread to roll back was deleted.
func (c *Client) RestoreSnapshot(
	ctx context.Context, snapshotID string, options *RestoreOptions,
) ([]*tuskpointv1.CheckpointRef, error) {
	given := valueOf(options)
	mode := tuskpointv1.RestoreMode_RESTORE_MODE_NEW_THREADS
	if given.Rollback {
		mode = tuskpointv1.RestoreMode_RESTORE_MODE_ROLLBACK
	}
	answer, err := c.snapshots.RestoreSnapshot(ctx, &tuskpointv1.RestoreSnapshotRequest{
		SnapshotId: snapshotID, Mode: mode, Durability: given.Durability,
		SkipDeleted: given.SkipDeleted,
	})
	for _, ref := range answer.GetRestored() {
		c.memory.forget(ref.GetThreadId())
	}
	return answer.GetRestored(), err
}

// DeleteSnapshot deletes a snapshot and all data that only the snapshot keeps, and returns whether
// the snapshot existed. Threads that were restored from it stay. Options may be nil.
func (c *Client) DeleteSnapshot(
	ctx context.Context, snapshotID string, options *ChangeOptions,
) (bool, error) {
	answer, err := c.snapshots.DeleteSnapshot(ctx, &tuskpointv1.DeleteSnapshotRequest{
		SnapshotId: snapshotID, Durability: valueOf(options).Durability,
	})
	return answer.GetDeleted(), err
}
