package tuskpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"tuskpoint.dev/go/tuskpoint/internal/mint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// Save chooses the parent and the versions of a checkpoint, and leaves unchanged values out.

const (
	stateLayout = 4 // the layout that LangGraph 1.x writes, and reads without migration
	jsonType    = "json"
)

// SaveOptions are the settings of a save. The zero value follows the latest checkpoint of the
// thread, whichever client saved it, and waits until the save is journaled.
type SaveOptions struct {
	// Namespace of the thread; empty is the root.
	Namespace string

	// CheckpointID is the ID of the new checkpoint. Empty: a UUIDv6 above the parent's ID.
	CheckpointID string

	// ParentID is the parent of the new checkpoint. Empty: ExpectedHead, else the latest checkpoint
	// of the namespace at the moment of the save.
	ParentID string

	// Root: the new checkpoint has no parent, whatever the namespace contains.
	Root bool

	// ExpectedHead is the ID that the latest checkpoint must have; otherwise nothing is saved and
	// the error is [ErrConflict]. It protects against two agents that drive one thread.
	ExpectedHead string

	// First: the namespace must have no checkpoint; otherwise nothing is saved and the error is
	// [ErrConflict].
	First bool

	// Metadata is a JSON object to save with the checkpoint.
	Metadata map[string]any

	// Summary is one sentence about what happened.
	Summary string

	// Label is a label for the checkpoint.
	Label string

	// AgentID is the name of the agent that drives the thread.
	AgentID string

	// Durability to wait for: [Journaled], which is the default, or [Certified].
	Durability Durability

	// Vector is the vector with which [Client.SearchVector] finds the checkpoint. All vectors have
	// the same dimension. Empty: the vector sent before, or a vector that the server's embedder
	// computes.
	Vector []float32

	// Searchable: whether search finds the thread's checkpoints, from this save on. nil: unchanged;
	// a new thread is searchable.
	Searchable *bool
}

// Saved is the result of a save.
type Saved struct {
	// CheckpointID is the ID of the checkpoint.
	CheckpointID string

	// Durability is the durability that the save reached; at least the requested one.
	Durability Durability

	// Sequence is the position of the change in the thread.
	Sequence uint64

	// CatalogBlobID is the blob ID of a catalog that leads to the checkpoint; empty until it is
	// certified.
	CatalogBlobID string

	// Warnings are conditions that a successful save reports, for example a growing backlog of
	// uncertified data.
	Warnings []Warning
}

// Warning is a condition that a successful call reports.
type Warning struct {
	// Kind is the kind of the condition.
	Kind tuskpointv1.WarningKind

	// Message is text for people.
	Message string
}

// Save saves a checkpoint. Each key of the state is a channel whose value is its JSON, as
// [encoding/json] writes it, with U+FFFD for bytes of a string that are not UTF-8. A value that
// equals the parent's is not sent again and keeps its version; a changed value gets a version above
// all versions of the parent. Options may be nil.
//
// Errors: [ErrInvalidRequest] if the state is not JSON or an option breaks its limits,
// [ErrConflict] if the latest checkpoint is not the expected head, [ErrThreadDeleted] if the parent
// belongs to a deleted thread.
func (c *Client) Save(
	ctx context.Context, threadID string, state map[string]any, options *SaveOptions,
) (*Saved, error) {
	draft, err := newDraft(threadID, state, options)
	if err != nil {
		return nil, err
	}
	parent, err := c.parentOf(ctx, draft)
	if err != nil {
		return nil, err
	}
	plan, err := draft.after(parent)
	if err != nil {
		return nil, err
	}
	answer, err := c.sendPlan(ctx, plan)
	if err != nil {
		if errors.Is(err, ErrConflict) || errors.Is(err, ErrThreadDeleted) {
			c.memory.forget(threadID)
		}
		return nil, err
	}
	id := answer.GetRef().GetCheckpointId()
	guessed := draft.followsLatest() && answer.GetParentCheckpointId() != plan.parentID
	c.memory.put(draft.place, known{id, plan.parentID, plan.channels, guessed})
	return &Saved{
		CheckpointID:  id,
		Durability:    answer.GetDurability(),
		Sequence:      answer.GetSeq(),
		CatalogBlobID: answer.GetCatalogBlobId(),
		Warnings:      warningsOf(answer.GetWarnings()),
	}, nil
}

// sendPlan saves a plan; a second attempt sends the values that the service does not have.
func (c *Client) sendPlan(ctx context.Context, plan *plan) (*tuskpointv1.SaveCheckpointResponse, error) {
	answer, err := c.saveCheckpoint(ctx, plan.request(plan.changed))
	if !errors.Is(err, ErrValuesMissing) {
		return answer, err
	}
	inline := maps.Clone(plan.changed)
	for _, violation := range violationsOf(err) {
		inline[violation.Field] = true
	}
	answer, err = c.saveCheckpoint(ctx, plan.request(inline))
	if !errors.Is(err, ErrValuesMissing) {
		return answer, err
	}
	// Trailers are bounded, so that a refusal names only as many channels as fit.
	for name := range plan.channels {
		inline[name] = true
	}
	return c.saveCheckpoint(ctx, plan.request(inline))
}

func violationsOf(err error) []Violation {
	var failure *Error
	if errors.As(err, &failure) {
		return failure.Violations
	}
	return nil
}

// parentOf returns the parent of a save.
func (c *Client) parentOf(ctx context.Context, draft *draft) (known, error) {
	if draft.options.Root || draft.options.First {
		return known{}, nil
	}
	remembered, _ := c.memory.get(draft.place)
	if draft.followsLatest() {
		return remembered, nil // the parent is a guess: the service decides
	}
	// A save that names the expected head also names the parent.
	wanted := cmp.Or(draft.options.ParentID, draft.options.ExpectedHead)
	if wanted == remembered.id && !remembered.guessed {
		return remembered, nil
	}
	loaded, err := c.getCheckpoint(ctx, &tuskpointv1.CheckpointRef{
		ThreadId: draft.place.threadID, CheckpointNs: draft.place.namespace, CheckpointId: wanted,
	}, ViewFull, SourceAny)
	if isReason(err, "CHECKPOINT_NOT_FOUND") {
		return known{id: wanted}, nil
	}
	if err != nil {
		return known{}, err
	}
	parent := known{
		id: loaded.GetRef().GetCheckpointId(), parentID: loaded.GetParentCheckpointId(),
		channels: map[string]held{},
	}
	for _, channel := range loaded.GetState().GetChannels() {
		parent.channels[channel.GetName()] = held{channel.GetVersion(), string(channel.GetDigest())}
	}
	return parent, nil
}

// draft is a save as the caller requested it.
type draft struct {
	place    place
	names    []string // of the channels, in order
	values   map[string][]byte
	digests  map[string]string
	metadata []byte
	time     string
	options  SaveOptions
}

func newDraft(threadID string, state map[string]any, options *SaveOptions) (*draft, error) {
	given := valueOf(options)
	if given.Root && given.ParentID != "" {
		return nil, invalidField("root", "a checkpoint with a parent is not a root: set one of the two")
	}
	if given.First && (given.ParentID != "" || given.ExpectedHead != "") {
		return nil, invalidField("first", "a first checkpoint must have neither a parent nor an expected head")
	}
	metadata, err := encodeObject("metadata", given.Metadata)
	if err != nil {
		return nil, err
	}
	made := &draft{
		place:    place{threadID, given.Namespace},
		names:    slices.Sorted(maps.Keys(state)),
		values:   make(map[string][]byte, len(state)),
		digests:  make(map[string]string, len(state)),
		metadata: metadata,
		time:     time.Now().UTC().Format("2006-01-02T15:04:05.000000-07:00"),
		options:  given,
	}
	for name, value := range state {
		if name == "" || !utf8.ValidString(name) {
			return nil, invalidField("state", "its keys must be names of channels: texts in UTF-8 that are "+
				"not empty")
		}
		text, err := encodeJSON(fmt.Sprintf("state[%q]", name), value)
		if err != nil {
			return nil, err
		}
		made.values[name], made.digests[name] = text, valueDigest(jsonType, text)
	}
	return made, nil
}

// followsLatest reports whether the save follows the latest checkpoint, whichever that is.
func (d *draft) followsLatest() bool {
	given := d.options
	return !given.Root && !given.First && given.ParentID == "" && given.ExpectedHead == ""
}

// plan is a save with its parent and its ID.
type plan struct {
	*draft
	id           string
	parentID     string
	expectedHead *string
	channels     map[string]held
	changed      map[string]bool // the channels whose content the parent does not have
}

func (d *draft) after(parent known) (*plan, error) {
	versions := make([]*tuskpointv1.Version, 0, len(parent.channels))
	for _, channel := range parent.channels {
		versions = append(versions, channel.version)
	}
	raised, err := mint.Version(versions)
	if err != nil {
		return nil, invalidField("parent", err.Error())
	}
	made := &plan{
		draft: d, id: d.options.CheckpointID, parentID: parent.id,
		channels: make(map[string]held, len(d.names)), changed: map[string]bool{},
	}
	if made.id == "" {
		if made.id, err = mint.ID(parent.id); err != nil {
			return nil, invalidField("checkpoint_id", err.Error())
		}
	} else if made.id == parent.id {
		made.parentID = parent.parentID // the checkpoint is saved again
	}
	if given := d.options; given.First || given.ExpectedHead != "" {
		made.expectedHead = &given.ExpectedHead
	}
	if d.followsLatest() && parent.guessed {
		made.parentID = "" // no checkpoint has this parent, so the service sets the versions
	}
	for _, name := range d.names {
		before, has := parent.channels[name]
		if has && before.digest == d.digests[name] {
			made.channels[name] = before
			continue
		}
		made.channels[name] = held{raised, d.digests[name]}
		made.changed[name] = true
	}
	return made, nil
}

// request returns the save as a message of its own, with the content of some channels inline and
// the digests of the other channels.
func (p *plan) request(inline map[string]bool) *tuskpointv1.SaveCheckpointRequest {
	channels := make([]*tuskpointv1.Channel, len(p.names))
	updated := []string{}
	for i, name := range p.names {
		channels[i] = &tuskpointv1.Channel{
			Name: name, Version: p.channels[name].version, Digest: []byte(p.digests[name]),
		}
		if inline[name] {
			value := &tuskpointv1.Value{Type: jsonType, Data: p.values[name]}
			channels[i].Content = &tuskpointv1.Channel_Value{Value: value}
		}
		if p.changed[name] {
			updated = append(updated, name)
		}
	}
	return &tuskpointv1.SaveCheckpointRequest{
		Checkpoint: &tuskpointv1.Checkpoint{
			Ref: &tuskpointv1.CheckpointRef{
				ThreadId: p.place.threadID, CheckpointNs: p.place.namespace, CheckpointId: p.id,
			},
			ParentCheckpointId: p.parentID,
			State: &tuskpointv1.CheckpointState{
				SchemaVersion:   stateLayout,
				Ts:              p.time,
				Channels:        channels,
				UpdatedChannels: &tuskpointv1.ChannelNames{Names: updated},
			},
			MetadataJson: p.metadata,
			Summary:      p.options.Summary,
			Label:        p.options.Label,
		},
		Durability:     p.options.Durability,
		ExpectedHead:   p.expectedHead,
		AgentId:        p.options.AgentID,
		Vector:         p.options.Vector,
		Searchable:     p.options.Searchable,
		ContinueLatest: p.followsLatest(),
		RaiseId:        p.followsLatest() && p.options.CheckpointID == "",
	}
}

// valueDigest returns the digest that names a value; see tuskpointv1.Channel.
func valueDigest(kind string, data []byte) string {
	digest := sha256.New()
	digest.Write([]byte(kind + "\x00"))
	digest.Write(data)
	return string(digest.Sum(nil))
}

func warningsOf(messages []*tuskpointv1.Warning) []Warning {
	warnings := make([]Warning, len(messages))
	for i, message := range messages {
		warnings[i] = Warning{message.GetKind(), message.GetMessage()}
	}
	return warnings
}

// isReason reports whether an error has this reason.
func isReason(err error, reason string) bool {
	var failure *Error
	return errors.As(err, &failure) && failure.Reason == reason
}
