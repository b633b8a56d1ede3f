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
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// Descriptor is a small portable description of a checkpoint that was handed off. As JSON it has
// exactly these keys, the last four only if they are not empty; [json.Unmarshal] refuses text with
// others, or without one of them.
type Descriptor struct {
	// Source is what was handed off, "thread:checkpoint".
	Source string `json:"source"`

	// ThreadID is its thread.
	ThreadID string `json:"thread_id"`

	// CheckpointID is its ID.
	CheckpointID string `json:"checkpoint_id"`

	// BlobID is the blob that holds all that continuing from it needs.
	BlobID string `json:"blob_id"`

	// BlobSHA256 is SHA-256 of the blob's bytes, in lowercase hex. The one thing trusted.
	BlobSHA256 string `json:"blob_sha256"`

	// ToAgent is the agent it is meant for; may be empty.
	ToAgent string `json:"to_agent"`

	// Summary is one sentence about the state of the agent.
	Summary string `json:"summary"`

	// Key opens the blob if it is sealed, in lowercase hex; empty if it was not asked for. Whoever has
	// it can read the checkpoint.
	Key string `json:"key,omitempty"`

	// Signer is the public key of the server that handed off, in lowercase hex; empty if nobody
	// signed.
	Signer string `json:"signer,omitempty"`

	// Signature is the signer's, in lowercase hex; the adopting server checks it.
	Signature string `json:"signature,omitempty"`

	// SealedKey is the key for the recipient that the hand-off names, in base64; empty if it names
	// none.
	SealedKey string `json:"sealed_key,omitempty"`
}

// descriptorKeys are the keys of a descriptor, in order.
var descriptorKeys = []string{
	"source", "thread_id", "checkpoint_id", "blob_id", "blob_sha256", "to_agent", "summary",
}

// maxSealedKey is the length of the longest sealed key.
const maxSealedKey = 4096

// furtherKeys are the keys that may be missing.
var furtherKeys = []string{"key", "signer", "signature", "sealed_key"}

var (
	sha256Hex    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	signatureHex = regexp.MustCompile(`^[0-9a-f]{128}$`)
	base64Text   = regexp.MustCompile(`^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`)
)

// ParseDescriptor reads a descriptor from its JSON text. What is none is [ErrInvalidDescriptor].
func ParseDescriptor(text []byte) (*Descriptor, error) {
	descriptor := new(Descriptor)
	if err := descriptor.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return descriptor, nil
}

// UnmarshalJSON reads a descriptor, and checks it. It is how [encoding/json] reads one.
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

// Check passes if a descriptor can be one; otherwise the error is [ErrInvalidDescriptor].
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

// uniqueMembers reads a JSON object of texts, in which no key comes twice.
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
	// CheckpointID is the checkpoint. Empty: the latest.
	CheckpointID string

	// Namespace inside the thread; empty is the root.
	Namespace string

	// ToAgent is the name of the agent it is meant for.
	ToAgent string

	// IncludeKey puts the key of a sealed blob into the descriptor, for a receiver whose server has
	// other keys. Whoever has the descriptor can read the checkpoint then.
	IncludeKey bool

	// Recipient seals the key to this public key of age (age1...), which the description of the
	// receiver's server lists; only that server opens the blob then. The sender's server must seal
	// what it stores. Empty: nobody.
	Recipient string
}

// HandOff stores a checkpoint and all that it needs as one blob, and returns the blob's
// descriptor. An agent with the descriptor and the same blob store can adopt it. Options may be nil.
//
// Errors: [ErrNotFound] if there is no such checkpoint, [ErrUnavailable] if the blob store cannot be
// used now.
func (c *Client) HandOff(
	ctx context.Context, threadID string, options *HandOffOptions,
) (*Descriptor, error) {
	given := valueOf(options)
	answer, err := c.handoffs.CreateHandoff(ctx, &tuskpointv1.CreateHandoffRequest{
		Ref: refOf(threadID, given.Namespace, given.CheckpointID), ToAgent: given.ToAgent,
		IncludeKey: given.IncludeKey, Recipient: given.Recipient,
	})
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

// AdoptStage is how far an adoption is.
type AdoptStage = tuskpointv1.AdoptStage

const (
	// Fetching: bytes are being fetched.
	Fetching = tuskpointv1.AdoptStage_ADOPT_STAGE_FETCHING

	// Fetched: all bytes are here.
	Fetched = tuskpointv1.AdoptStage_ADOPT_STAGE_FETCHED

	// Verified: they have the hash of the descriptor.
	Verified = tuskpointv1.AdoptStage_ADOPT_STAGE_VERIFIED

	// Adopted: the new thread exists.
	Adopted = tuskpointv1.AdoptStage_ADOPT_STAGE_ADOPTED
)

// AdoptProgress is how far an adoption is.
type AdoptProgress struct {
	// Stage that was reached.
	Stage AdoptStage

	// FetchedBytes is the number of bytes fetched so far.
	FetchedBytes uint64
}

// AdoptOptions are the settings of an adoption.
type AdoptOptions struct {
	// OnProgress is called at each stage, if not nil.
	OnProgress func(AdoptProgress)

	// Durability to wait for. The default is [Certified]: then the new checkpoint has a blob of its
	// own.
	Durability Durability

	// RequireSigners adopts only what one of these servers signed: public keys, in lowercase hex.
	RequireSigners []string
}

// Adoption is the outcome of an adoption.
type Adoption struct {
	// AdoptedFrom is what was adopted, "thread:checkpoint".
	AdoptedFrom string

	// NewThreadID is the new thread.
	NewThreadID string

	// CheckpointID is its first checkpoint.
	CheckpointID string

	// BlobID is the blob that holds the adopted checkpoint in the new thread; empty as long as it is
	// not certified.
	BlobID string

	// Verified is true: the hash was checked. There is no adoption without it.
	Verified bool

	// Signer is the public key of the server that signed the descriptor; empty if nobody did.
	Signer string
}

// Adopt makes a hand-off the first checkpoint of a new thread, once its hash is checked; without a
// name for the thread, the server makes one. The blob is fetched from the blob store itself.
// Options may be nil.
//
// Errors: [ErrInvalidDescriptor] if the descriptor is none, [ErrDescriptorMismatch] if the blob
// holds another checkpoint than it names, [ErrHashMismatch] if the blob does not have the hash,
// [ErrNotFound] if the blob store has no such blob, [ErrAlreadyExists] if the new thread has
// checkpoints. Nothing is written then.
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
