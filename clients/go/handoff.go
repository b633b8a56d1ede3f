package tuskpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// Descriptor is a small portable description of a handed-off checkpoint. As JSON it has exactly
// these keys, the last four only if they are not empty; [json.Unmarshal] refuses text with other
// keys, or with a missing key.
type Descriptor struct {
	// Source is the handed-off checkpoint, "thread:checkpoint".
	Source string `json:"source"`

	// ThreadID is the thread of the handed-off checkpoint.
	ThreadID string `json:"thread_id"`

	// CheckpointID is the ID of the handed-off checkpoint.
	CheckpointID string `json:"checkpoint_id"`

	// BlobID is the blob with everything needed to continue from the checkpoint.
	BlobID string `json:"blob_id"`

	// BlobSHA256 is the SHA-256 of the blob's bytes, in lowercase hex. It is the only trusted
	// field.
	BlobSHA256 string `json:"blob_sha256"`

	// ToAgent is the agent that may adopt the hand-off; may be empty.
	ToAgent string `json:"to_agent"`

	// Summary is one sentence about the state of the agent.
	Summary string `json:"summary"`

	// Key opens the blob if it is sealed, in lowercase hex; empty if it was not requested. Everyone
	// who has the key can read the checkpoint.
	Key string `json:"key,omitempty"`

	// Signer is the public key of the server that created the hand-off, in lowercase hex; empty
	// without a signature.
	Signer string `json:"signer,omitempty"`

	// Signature is the signature of that server, in lowercase hex; the adopting server checks it.
	Signature string `json:"signature,omitempty"`

	// SealedKey is the key sealed to the recipient that the hand-off names, in base64; empty
	// without a recipient.
	SealedKey string `json:"sealed_key,omitempty"`
}

// descriptorKeys are the keys of a descriptor, in order.
var descriptorKeys = []string{
	"source", "thread_id", "checkpoint_id", "blob_id", "blob_sha256", "to_agent", "summary",
}

// maxSealedKey is the length of the longest sealed key.
const maxSealedKey = 4096

// furtherKeys are the optional keys.
var furtherKeys = []string{"key", "signer", "signature", "sealed_key"}

var (
	sha256Hex    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	signatureHex = regexp.MustCompile(`^[0-9a-f]{128}$`)
	base64Text   = regexp.MustCompile(`^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`)
)

// ParseDescriptor reads a descriptor from its JSON text. The error for any other text is
// [ErrInvalidDescriptor].
func ParseDescriptor(text []byte) (*Descriptor, error) {
	descriptor := new(Descriptor)
	if err := descriptor.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return descriptor, nil
}

// UnmarshalJSON reads a descriptor, and checks it. [encoding/json] calls it.
func (d *Descriptor) UnmarshalJSON(text []byte) error {
	members, err := uniqueMembers(text)
	if err != nil {
		return noDescriptor("", err.Error())
	}
	for _, key := range descriptorKeys {
		if _, has := members[key]; !has {
			return noDescriptor(key, "the descriptor lacks it")
		}
	}
	for key := range members {
		if !slices.Contains(descriptorKeys, key) && !slices.Contains(furtherKeys, key) {
			return noDescriptor(key, "a descriptor has no such key")
		}
	}
	read := Descriptor{
		Source: members["source"], ThreadID: members["thread_id"], CheckpointID: members["checkpoint_id"],
		BlobID: members["blob_id"], BlobSHA256: members["blob_sha256"], ToAgent: members["to_agent"],
		Summary: members["summary"], Key: members["key"],
		Signer: members["signer"], Signature: members["signature"], SealedKey: members["sealed_key"],
	}
	if err := read.Check(); err != nil {
		return err
	}
	*d = read
	return nil
}

// Check returns nil for a valid descriptor, and otherwise [ErrInvalidDescriptor].
func (d *Descriptor) Check() error {
	texts := []string{
		d.Source, d.ThreadID, d.CheckpointID, d.BlobID, d.BlobSHA256, d.ToAgent, d.Summary,
	}
	for i, key := range descriptorKeys {
		if texts[i] == "" && key != "to_agent" && key != "summary" {
			return noDescriptor(key, "it must not be empty")
		}
		if !utf8.ValidString(texts[i]) {
			return noDescriptor(key, "it is not UTF-8")
		}
	}
	if !sha256Hex.MatchString(d.BlobSHA256) {
		return noDescriptor("blob_sha256", "it must be 64 lowercase hex digits")
	}
	if d.Key != "" && !sha256Hex.MatchString(d.Key) {
		return noDescriptor("key", "it must be 64 lowercase hex digits, or missing")
	}
	if d.Signer != "" && !sha256Hex.MatchString(d.Signer) {
		return noDescriptor("signer", "it must be 64 lowercase hex digits, or missing")
	}
	if d.Signature != "" && !signatureHex.MatchString(d.Signature) {
		return noDescriptor("signature", "it must be 128 lowercase hex digits, or missing")
	}
	if (d.Signer == "") != (d.Signature == "") {
		return noDescriptor("signature", "it must come with signer, or neither")
	}
	if len(d.SealedKey) > maxSealedKey || !base64Text.MatchString(d.SealedKey) {
		return noDescriptor("sealed_key", "it must be base64 of at most 4096 characters, or missing")
	}
	if d.Source != d.ThreadID+":"+d.CheckpointID {
		return noDescriptor("source", "it must be the thread and the checkpoint, joined by a colon")
	}
	return nil
}

// uniqueMembers reads a JSON object of strings, without repeated keys.
func uniqueMembers(text []byte) (map[string]string, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return nil, fmt.Errorf("it must be a JSON object with the keys %s", strings.Join(descriptorKeys, ", "))
	}
	members := map[string]string{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("it is not JSON: %w", err)
		}
		name, _ := key.(string)
		if _, has := members[name]; has {
			return nil, fmt.Errorf("key %q comes twice", name)
		}
		value, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("it is not JSON: %w", err)
		}
		member, isText := value.(string)
		if !isText {
			return nil, fmt.Errorf("%s is a text", name)
		}
		members[name] = member
	}
	if _, err := decoder.Token(); err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text follows the JSON object")
	}
	return members, nil
}

func noDescriptor(key, problem string) *Error {
	field := "descriptor"
	if key != "" {
		field += "." + key
	}
	wrong := invalidField(field, problem)
	wrong.kind = invalidDescriptor
	return wrong
}

// HandOffOptions are the settings of a hand-off.
type HandOffOptions struct {
	// CheckpointID is the checkpoint. Empty: the latest checkpoint.
	CheckpointID string

	// Namespace of the thread; empty is the root.
	Namespace string

	// ToAgent is the name of the agent that may adopt the hand-off.
	ToAgent string

	// IncludeKey puts the key of a sealed blob into the descriptor, for a receiver whose server has
	// other keys. Everyone who has the descriptor can then read the checkpoint.
	IncludeKey bool

	// Recipient seals the key to this public key of age (age1...), which the server info of the
	// receiver's server lists; only that server can then open the blob. The sender's server must
	// seal the blobs that it stores. Empty: no recipient.
	Recipient string

	// ExpiresIn is the time after which the offer in the inbox of ToAgent expires; the descriptor
	// does not expire. 0: never.
	ExpiresIn time.Duration
}

// HandOff stores a checkpoint and everything that it needs as one blob, and returns the blob's
// descriptor. An agent with the descriptor and the same blob store can adopt the checkpoint. The
// hand-off is also offered in the inbox of ToAgent. Options may be nil.
//
// Errors: [ErrNotFound] if the checkpoint does not exist, [ErrUnavailable] if the blob store is not
// available.
func (c *Client) HandOff(
	ctx context.Context, threadID string, options *HandOffOptions,
) (*Descriptor, error) {
	given := valueOf(options)
	request := &tuskpointv1.CreateHandoffRequest{
		Ref: refOf(threadID, given.Namespace, given.CheckpointID), ToAgent: given.ToAgent,
		IncludeKey: given.IncludeKey, Recipient: given.Recipient,
	}
	if given.ExpiresIn != 0 {
		request.ExpiresIn = durationpb.New(given.ExpiresIn)
	}
	answer, err := c.handoffs.CreateHandoff(ctx, request)
	if err != nil {
		return nil, err
	}
	made := answer.GetDescriptor_()
	return &Descriptor{
		Source:       made.GetSource(),
		ThreadID:     made.GetThreadId(),
		CheckpointID: made.GetCheckpointId(),
		BlobID:       made.GetBlobId(),
		BlobSHA256:   made.GetBlobSha256(),
		ToAgent:      made.GetToAgent(),
		Summary:      made.GetSummary(),
		Key:          made.GetKey(),
		Signer:       made.GetSigner(),
		Signature:    made.GetSignature(),
		SealedKey:    made.GetSealedKey(),
	}, nil
}

// AdoptStage is a stage of an adoption.
type AdoptStage = tuskpointv1.AdoptStage

const (
	// Fetching: the server is fetching bytes.
	Fetching = tuskpointv1.AdoptStage_ADOPT_STAGE_FETCHING

	// Fetched: the server has all bytes.
	Fetched = tuskpointv1.AdoptStage_ADOPT_STAGE_FETCHED

	// Verified: the bytes match the hash of the descriptor.
	Verified = tuskpointv1.AdoptStage_ADOPT_STAGE_VERIFIED

	// Adopted: the new thread exists.
	Adopted = tuskpointv1.AdoptStage_ADOPT_STAGE_ADOPTED
)

// AdoptProgress is the progress of an adoption.
type AdoptProgress struct {
	// Stage is the current stage.
	Stage AdoptStage

	// FetchedBytes is the number of bytes fetched so far.
	FetchedBytes uint64
}

// AdoptOptions are the settings of an adoption.
type AdoptOptions struct {
	// OnProgress is called with each stage, if not nil.
	OnProgress func(AdoptProgress)

	// Durability to wait for. With the default, [Certified], the new checkpoint has a blob of its
	// own.
	Durability Durability

	// RequireSigners adopts only descriptors that one of these servers signed: public keys, in
	// lowercase hex.
	RequireSigners []string
}

// Adoption is the result of an adoption.
type Adoption struct {
	// AdoptedFrom is the adopted checkpoint, "thread:checkpoint".
	AdoptedFrom string

	// NewThreadID is the new thread.
	NewThreadID string

	// CheckpointID is the first checkpoint of the new thread.
	CheckpointID string

	// BlobID is the blob that contains the adopted checkpoint in the new thread; empty until it is
	// certified.
	BlobID string

	// Verified is always true: the hash was checked. There is no adoption without the check.
	Verified bool

	// Signer is the public key of the server that signed the descriptor; empty without a signature.
	Signer string
}

// Adopt makes a hand-off the first checkpoint of a new thread, after its hash is checked; without a
// name for the thread, the server generates one. The server fetches the blob from the blob store
// itself. Options may be nil.
//
// Errors: [ErrInvalidDescriptor] if the descriptor is not valid, [ErrDescriptorMismatch] if the
// blob contains a checkpoint that the descriptor does not name, [ErrHashMismatch] if the blob does
// not match the hash, [ErrNotFound] if the blob store does not have the blob, [ErrAlreadyExists] if
// the new thread has checkpoints. Nothing is written then.
func (c *Client) Adopt(
	ctx context.Context, descriptor *Descriptor, newThreadID string, options *AdoptOptions,
) (*Adoption, error) {
	given := valueOf(options)
	if descriptor == nil {
		return nil, noDescriptor("", "there is none")
	}
	if err := descriptor.Check(); err != nil {
		return nil, err
	}
	request := &tuskpointv1.AdoptHandoffRequest{
		Descriptor_: &tuskpointv1.HandoffDescriptor{
			Source:       descriptor.Source,
			ThreadId:     descriptor.ThreadID,
			CheckpointId: descriptor.CheckpointID,
			BlobId:       descriptor.BlobID,
			BlobSha256:   descriptor.BlobSHA256,
			ToAgent:      descriptor.ToAgent,
			Summary:      descriptor.Summary,
			Key:          descriptor.Key,
			Signer:       descriptor.Signer,
			Signature:    descriptor.Signature,
			SealedKey:    descriptor.SealedKey,
		},
		RequiredSigners: given.RequireSigners,
		NewThreadId:     newThreadID,
		RequestId:       rand.Text(),
		Durability:      given.Durability,
	}
	return c.adopt(ctx, request, given)
}

// adopt follows an adoption to its end.
func (c *Client) adopt(
	ctx context.Context, request *tuskpointv1.AdoptHandoffRequest, given AdoptOptions,
) (*Adoption, error) {
	start := func() *adoptionStream { return &adoptionStream{request: request} }
	var adoption *tuskpointv1.Adoption
	for frame, err := range follow(
		ctx, c.calls, c.calls.times.long, true, c.handoffs.AdoptHandoff, start,
	) {
		if err != nil {
			return nil, err
		}
		if given.OnProgress != nil {
			given.OnProgress(AdoptProgress{frame.GetStage(), frame.GetFetchedBytes()})
		}
		if frame.GetAdoption() != nil {
			adoption = frame.GetAdoption()
		}
	}
	return adoptionOf(adoption)
}

func adoptionOf(message *tuskpointv1.Adoption) (*Adoption, error) {
	if !message.GetVerified() {
		return nil, &Error{
			Status: codes.Internal, Message: "the server adopted without checking the hash",
			kind: serverDefect,
		}
	}
	return &Adoption{
		AdoptedFrom:  message.GetAdoptedFrom(),
		NewThreadID:  message.GetNewThreadId(),
		CheckpointID: message.GetCheckpointId(),
		BlobID:       message.GetBlobId(),
		Verified:     true,
		Signer:       message.GetSigner(),
	}, nil
}
