package tuskpoint

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// Durability is the durability of a change.
type Durability = tuskpointv1.Durability

const (
	// Journaled: the change is in the service's own database and fsynced.
	Journaled = tuskpointv1.Durability_DURABILITY_JOURNALED

	// Certified: the change is also in the blob store, read back and compared, together with the
	// manifest and catalog that lead to it.
	Certified = tuskpointv1.Durability_DURABILITY_CERTIFIED
)

// View is how much of a checkpoint a read returns.
type View = tuskpointv1.View

const (
	// ViewEntry: neither state nor pending writes.
	ViewEntry = tuskpointv1.View_VIEW_ENTRY

	// ViewFull: everything, as it was saved.
	ViewFull = tuskpointv1.View_VIEW_FULL

	// ViewJSON: everything, with every value rendered as JSON, whatever framework and language
	// saved it. A value that JSON cannot express is an escape, an object with a key that starts
	// with one "$"; see tuskpointv1.View_VIEW_JSON.
	ViewJSON = tuskpointv1.View_VIEW_JSON

	// ViewStep: neither state nor pending writes, but Step: the nodes that ran, the channels that
	// changed, what comes next, questions, failures and tokens. It needs [SourceAny].
	ViewStep = tuskpointv1.View_VIEW_STEP
)

// Source is where a read takes its bytes from.
type Source = tuskpointv1.Source

const (
	// SourceAny: the journal first, then the local cache, then the blob store.
	SourceAny = tuskpointv1.Source_SOURCE_ANY

	// SourceBlob: the blob store itself. A checkpoint that is not certified is refused.
	SourceBlob = tuskpointv1.Source_SOURCE_BLOB
)

// Channel is one named slot of an agent's state.
type Channel struct {
	// Name is unique in a checkpoint.
	Name string

	// Type is the name of the encoding of Data, such as "json"; empty if the channel has no value.
	Type string

	// Data is the encoded value.
	Data []byte

	// Version of the content; nil if its framework gave it no version.
	Version *tuskpointv1.Version

	// Digest is the SHA-256 over the type, a zero byte and the saved data, in lowercase hex; empty
	// if the channel has no value.
	Digest string
}

// Write is a value that a task wrote after a checkpoint and before the next checkpoint.
type Write struct {
	// TaskID is the task.
	TaskID string

	// TaskPath is the position of the task in the graph; may be empty.
	TaskPath string

	// Index is the slot of the write within its task.
	Index int32

	// Channel is the channel that the task wrote to.
	Channel string

	// Type is the name of the encoding of Data, such as "json".
	Type string

	// Data is the encoded value.
	Data []byte
}

// Lineage has the origins of a checkpoint besides its parent. Each is "thread:checkpoint" or empty.
type Lineage struct {
	ForkedFrom     string // the checkpoint that was forked, if the thread is a fork
	RolledBackFrom string // the checkpoint that was rolled back to, if the checkpoint is a rollback
	AdoptedFrom    string // the checkpoint that was adopted, if the thread started with a hand-off
}

// Location is the location of stored bytes, and the hash that they must have.
type Location struct {
	BlobID     string // the blob; on Walrus, the quilt if Identifier is set
	Identifier string // name of the patch inside the quilt; empty for a standalone blob
	SHA256     string // over the exact stored bytes, in lowercase hex
	Size       uint64 // number of stored bytes
}

// Checkpoint is a loaded checkpoint.
type Checkpoint struct {
	// ThreadID is the thread.
	ThreadID string

	// Namespace of the thread; empty is the root.
	Namespace string

	// ID of the checkpoint.
	ID string

	// ParentID is the parent of the checkpoint; empty at the root.
	ParentID string

	// Metadata is the JSON object that was saved with the checkpoint, byte for byte; {} if none was
	// saved.
	Metadata json.RawMessage

	// Summary is one sentence about what happened.
	Summary string

	// Label of the checkpoint; empty without a label.
	Label string

	// Lineage has the origins of the checkpoint besides its parent.
	Lineage Lineage

	// Sequence is the position of the checkpoint's last change in the thread.
	Sequence uint64

	// Durability of that change.
	Durability Durability

	// Location of the segment that contains the checkpoint's state; nil until it is stored.
	Location *Location

	// Created is the time of the first save.
	Created time.Time

	// AgentID is the agent that drives the thread; empty if none was named.
	AgentID string

	// Channels are the encoded state, in order; empty if the checkpoint was read without state.
	Channels []Channel

	// Writes are the pending writes, in order; empty if the checkpoint was read without state.
	Writes []Write

	// Step is what the step that led to the checkpoint did, and what comes next; nil unless the
	// checkpoint was read with [ViewStep].
	Step *Step
}

// State returns the state: one key for each channel that has a value, with its JSON as it was
// saved, so that no number loses a bit.
//
// State fails with [ErrUnreadable] if a channel has another type than json or null, as channels
// that LangGraph's Python agents save have: read the checkpoint with [ViewJSON], or use the bytes
// in Channels.
func (c *Checkpoint) State() (map[string]json.RawMessage, error) {
	state := make(map[string]json.RawMessage, len(c.Channels))
	for _, channel := range c.Channels {
		switch channel.Type {
		case "":
		case "json":
			if !json.Valid(channel.Data) {
				return nil, unreadableChannel(channel, "has the type json but is not JSON")
			}
			state[channel.Name] = channel.Data
		case "null":
			state[channel.Name] = json.RawMessage("null")
		default:
			return nil, unreadableChannel(channel, fmt.Sprintf("is of type %q, which only the "+
				"framework that saved it can read; load it with ViewJSON, or take its bytes",
				channel.Type))
		}
	}
	return state, nil
}

// Decode stores the state in the struct or map that into points to, as [encoding/json] does;
// numbers in values of type any become [json.Number], so that no number loses a bit. It fails in
// the same cases as State.
func (c *Checkpoint) Decode(into any) error {
	state, err := c.State()
	if err != nil {
		return err
	}
	return decodeJSON(state, into)
}

// decodeJSON stores members of an object in the value that into points to.
func decodeJSON(members map[string]json.RawMessage, into any) error {
	text, err := encodeJSON("state", members)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

func unreadableChannel(channel Channel, problem string) *Error {
	return &Error{
		Status:   codes.FailedPrecondition,
		Message:  fmt.Sprintf("channel %q %s", channel.Name, problem),
		Metadata: map[string]string{"channel": channel.Name, "type": channel.Type},
		kind:     unreadable,
	}
}

// checkpointOf returns a complete message (every value inline) as a record.
func checkpointOf(message *tuskpointv1.Checkpoint) *Checkpoint {
	lineage := message.GetLineage()
	return &Checkpoint{
		ThreadID:   message.GetRef().GetThreadId(),
		Namespace:  message.GetRef().GetCheckpointNs(),
		ID:         message.GetRef().GetCheckpointId(),
		ParentID:   message.GetParentCheckpointId(),
		Metadata:   objectOf(message.GetMetadataJson()),
		Summary:    message.GetSummary(),
		Label:      message.GetLabel(),
		Lineage:    Lineage{lineage.GetForkedFrom(), lineage.GetRolledBackFrom(), lineage.GetAdoptedFrom()},
		Durability: message.GetDurability(),
		Sequence:   message.GetSeq(),
		Location:   locationOf(message.GetLocation()),
		Created:    timeOf(message.GetCreateTime()),
		AgentID:    message.GetAgentId(),
		Channels:   channelsOf(message.GetState().GetChannels()),
		Writes:     writesOf(message.GetWrites()),
		Step:       message.GetStep(),
	}
}

func channelsOf(messages []*tuskpointv1.Channel) []Channel {
	channels := make([]Channel, len(messages))
	for i, message := range messages {
		channels[i] = Channel{
			Name:    message.GetName(),
			Type:    message.GetValue().GetType(),
			Data:    message.GetValue().GetData(),
			Version: message.GetVersion(),
			Digest:  hex.EncodeToString(message.GetDigest()),
		}
	}
	return channels
}

func writesOf(messages []*tuskpointv1.PendingWrite) []Write {
	writes := make([]Write, len(messages))
	for i, message := range messages {
		writes[i] = Write{
			TaskID:   message.GetTaskId(),
			TaskPath: message.GetTaskPath(),
			Index:    message.GetIdx(),
			Channel:  message.GetChannel(),
			Type:     message.GetValue().GetType(),
			Data:     message.GetValue().GetData(),
		}
	}
	return writes
}

func locationOf(message *tuskpointv1.BlobLocation) *Location {
	if message == nil {
		return nil
	}
	return &Location{
		BlobID:     message.GetBlobId(),
		Identifier: message.GetIdentifier(),
		SHA256:     hex.EncodeToString(message.GetSha256()),
		Size:       message.GetSizeBytes(),
	}
}

func timeOf(moment *timestamppb.Timestamp) time.Time {
	if moment == nil {
		return time.Time{}
	}
	return moment.AsTime()
}

func objectOf(text []byte) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage("{}")
	}
	return text
}

// encodeJSON returns a value as compact JSON in UTF-8; what is the name of the value in the error.
func encodeJSON(what string, value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	// Without HTML escapes: characters are written unchanged.
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		wrong := invalidField(what, "it cannot be written as JSON: "+err.Error())
		wrong.cause = err
		return nil, wrong
	}
	// JSON input, such as a json.RawMessage, is copied unchanged.
	if !utf8.Valid(text.Bytes()) {
		return nil, invalidField(what, "it cannot be written as JSON: it is not UTF-8")
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// encodeObject returns a map as JSON; nothing for an empty map.
func encodeObject(what string, members map[string]any) ([]byte, error) {
	if len(members) == 0 {
		return nil, nil
	}
	return encodeJSON(what, members)
}
