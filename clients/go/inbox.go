package tuskpoint

import (
	"cmp"
	"context"
	"crypto/rand"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// OfferState is the state of an offer.
type OfferState = tuskpointv1.HandoffState

// The states of an offer.
const (
	OfferOpen      = tuskpointv1.HandoffState_HANDOFF_STATE_OFFERED
	OfferAdopted   = tuskpointv1.HandoffState_HANDOFF_STATE_ADOPTED
	OfferWithdrawn = tuskpointv1.HandoffState_HANDOFF_STATE_WITHDRAWN
	OfferExpired   = tuskpointv1.HandoffState_HANDOFF_STATE_EXPIRED
)

// OfferFilter selects offers of hand-offs; all given conditions must hold.
type OfferFilter struct {
	// ToAgent selects offers to this agent; a pointer to "" selects offers that name no agent.
	// The default is all agents.
	ToAgent *string

	// ThreadID selects offers of checkpoints of this thread.
	ThreadID string

	// States selects offers in these states. The default is all states.
	States []OfferState
}

// ListHandoffs yields the offers of hand-offs, oldest first. The filter may be nil.
func (c *Client) ListHandoffs(
	ctx context.Context, filter *OfferFilter,
) iter.Seq2[*tuskpointv1.Handoff, error] {
	given := valueOf(filter)
	return pages(func(token string) ([]*tuskpointv1.Handoff, string, error) {
		page, err := c.handoffs.ListHandoffs(ctx, &tuskpointv1.ListHandoffsRequest{
			ToAgent:   given.ToAgent,
			ThreadId:  given.ThreadID,
			States:    given.States,
			PageSize:  batch,
			PageToken: token,
		})
		return page.GetHandoffs(), page.GetNextPageToken(), err
	})
}

// WatchOffersOptions are the settings of [Client.WatchHandoffs].
type WatchOffersOptions struct {
	// States selects offers in these states. The default is only open offers.
	States []OfferState

	// Progress is the longest silence of the server, 1 second or more. The default is the
	// server's.
	Progress time.Duration
}

// WatchHandoffs yields the open offers to an agent, oldest first, then each new offer as it is
// made. The watch does not end. After a lost connection it starts again: it yields each open offer
// once and misses none. Another agent may adopt an offer first: [Client.AdoptOffer] then fails with
// [ErrPreconditionFailed]. Options may be nil.
//
// Errors: [ErrUnavailable] if no server could be reached for minutes.
func (c *Client) WatchHandoffs(
	ctx context.Context, toAgent string, options *WatchOffersOptions,
) iter.Seq2[*tuskpointv1.Handoff, error] {
	given := valueOf(options)
	if given.Progress != 0 && given.Progress < time.Second {
		return failed[*tuskpointv1.Handoff](
			invalidField("progress", "it must be 1 second or more, or 0"))
	}
	states := map[OfferState]bool{OfferOpen: len(given.States) == 0}
	for _, state := range given.States {
		states[state] = true
	}
	start := func() *offerStream {
		request := &tuskpointv1.WatchHandoffsRequest{ToAgent: toAgent}
		if given.Progress > 0 {
			request.ProgressInterval = durationpb.New(given.Progress)
		}
		return &offerStream{request: request, open: map[string]bool{}}
	}
	// No deadline: a watch has no end.
	frames := follow(ctx, c.calls, 0, true, c.handoffs.WatchHandoffs, start)
	return mapped(
		frames,
		func(frame *tuskpointv1.WatchHandoffsResponse) (*tuskpointv1.Handoff, bool) {
			handoff := frame.GetHandoff()
			return handoff, handoff != nil && states[handoff.GetState()]
		},
	)
}

// AdoptOfferOptions are the settings of [Client.AdoptOffer].
type AdoptOfferOptions struct {
	AdoptOptions

	// RequestID is a name that this worker gives to this adoption, and gives again after a crash:
	// the repeat gets the first adoption. By default only retries of the call get it.
	RequestID string
}

// AdoptOffer makes a thread from an open offer, which exactly one call can adopt; without a name
// for the thread, the server generates one. Options may be nil.
//
// Errors: [ErrNotFound] if the offer does not exist, or was removed with its thread,
// [ErrPreconditionFailed] if the offer was adopted or withdrawn, or has expired, and
// [ErrAlreadyExists] if the new thread has checkpoints.
func (c *Client) AdoptOffer(
	ctx context.Context, handoffID, newThreadID string, options *AdoptOfferOptions,
) (*Adoption, error) {
	given := valueOf(options)
	return c.adopt(ctx, &tuskpointv1.AdoptHandoffRequest{
		HandoffId:       handoffID,
		RequiredSigners: given.RequireSigners,
		NewThreadId:     newThreadID,
		RequestId:       cmp.Or(given.RequestID, rand.Text()),
		Durability:      given.Durability,
	}, given.AdoptOptions)
}

// WithdrawHandoff withdraws an open offer, so that nobody adopts the offer, and returns the offer.
// An agent that has the descriptor can still adopt with it.
//
// Errors: [ErrNotFound] if the offer does not exist, or was removed with its thread, and
// [ErrPreconditionFailed] if the offer was adopted, or has expired.
func (c *Client) WithdrawHandoff(
	ctx context.Context, handoffID string,
) (*tuskpointv1.Handoff, error) {
	answer, err := c.handoffs.WithdrawHandoff(
		ctx, &tuskpointv1.WithdrawHandoffRequest{HandoffId: handoffID})
	return answer.GetHandoff(), err
}

// offerStream is a watch of an inbox. After a break it delivers only new open offers.
type offerStream struct {
	request *tuskpointv1.WatchHandoffsRequest
	open    map[string]bool // delivered offers, as far as is known
	listed  map[string]bool // open offers, until all have arrived again
}

func (c *offerStream) nextRequest() *tuskpointv1.WatchHandoffsRequest {
	c.listed = map[string]bool{}
	return c.request
}

func (c *offerStream) add(
	frame *tuskpointv1.WatchHandoffsResponse,
) (*tuskpointv1.WatchHandoffsResponse, bool, error) {
	handoff := frame.GetHandoff()
	id := handoff.GetHandoffId()
	switch {
	case handoff == nil:
		if c.listed != nil {
			for known := range c.open {
				if !c.listed[known] {
					delete(c.open, known)
				}
			}
			c.listed = nil
		}
	case handoff.GetState() != OfferOpen:
		delete(c.open, id)
	default:
		if c.listed != nil {
			c.listed[id] = true
		}
		if c.open[id] {
			return nil, false, nil
		}
		c.open[id] = true
	}
	return frame, true, nil
}

func (c *offerStream) end() error { return endedWatch() }
