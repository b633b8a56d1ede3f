package tuskpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// RetentionRule selects threads and checkpoints to keep. With KeepLast or KeepFor, a checkpoint
// stays if one of the two keeps it, if it has a label, if it was handed off, or if it belongs to a
// root checkpoint that stays. Times are in whole seconds.
type RetentionRule struct {
	// AgentID: only threads of this agent, if not empty.
	AgentID string

	// ThreadID: only this thread, if not empty.
	ThreadID string

	// DeleteAfter is the time without a change after which a thread is deleted; 0: never.
	DeleteAfter time.Duration

	// KeepLast is the number of latest checkpoints that each namespace keeps; 0 keeps one.
	KeepLast uint32

	// KeepFor is the time for which checkpoints are kept; 0: no rule about time.
	KeepFor time.Duration
}

// PreviewRetention returns what retention rules would delete at this moment, and deletes nothing.
// Without rules, it uses the rules of the server.
//
// Errors: [ErrInvalidRequest] if a time is not in whole seconds above 0.
func (c *Client) PreviewRetention(
	ctx context.Context, rules []RetentionRule,
) (*tuskpointv1.PreviewRetentionResponse, error) {
	request := &tuskpointv1.PreviewRetentionRequest{}
	for i, rule := range rules {
		message := &tuskpointv1.RetentionRule{
			AgentId: rule.AgentID, ThreadId: rule.ThreadID, KeepLast: rule.KeepLast,
		}
		var err error
		if message.DeleteAfter, err = seconds(i, "DeleteAfter", rule.DeleteAfter); err != nil {
			return nil, err
		}
		if message.KeepFor, err = seconds(i, "KeepFor", rule.KeepFor); err != nil {
			return nil, err
		}
		request.Rules = append(request.Rules, message)
	}
	return c.threads.PreviewRetention(ctx, request)
}

// seconds returns a time of a rule as a message, nil for none.
func seconds(rule int, name string, duration time.Duration) (*durationpb.Duration, error) {
	if duration == 0 {
		return nil, nil
	}
	if duration < 0 || duration%time.Second != 0 {
		return nil, invalidField(fmt.Sprintf("rules[%d].%s", rule, name),
			fmt.Sprintf("it must be a time in whole seconds above 0, not %v", duration))
	}
	return durationpb.New(duration), nil
}

// Receipt is the proof that a server deleted threads.
type Receipt struct {
	// Content is the signed JSON object, as the server sent it; docs/servers/retention.md describes
	// its keys.
	Content json.RawMessage

	// Signer is the public key of the server, in lowercase hex.
	Signer string

	// Signature is the Ed25519 signature of "tuskpoint receipt v1", a line feed and the content, in
	// lowercase hex.
	Signature string
}

// Erase deletes threads, at most 1,000, waits until the deletion is certified, and returns a signed
// receipt. The receipt lists threads that do not exist with 0 checkpoints.
//
// Errors: [ErrUnavailable] if the blob store is not available. Deleted threads stay deleted;
// another call returns a receipt.
func (c *Client) Erase(ctx context.Context, threadIDs []string) (*Receipt, error) {
	answer, err := c.threads.EraseThreads(ctx, &tuskpointv1.EraseThreadsRequest{ThreadIds: threadIDs})
	for _, threadID := range threadIDs {
		c.memory.forget(threadID)
	}
	if err != nil {
		return nil, err
	}
	return &Receipt{answer.GetReceipt(), answer.GetSigner(), answer.GetSignature()}, nil
}
