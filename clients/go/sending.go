package tuskpoint

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"tuskpoint.dev/go/tuskpoint/internal/exchange"
	"tuskpoint.dev/go/tuskpoint/internal/retry"
	"tuskpoint.dev/go/tuskpoint/internal/wire"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// minReceivedBytes is the smallest allowed size of the largest message that an exchange stream
// accepts: answers come together in messages of up to 4 MiB, however small each answer is.
const minReceivedBytes = 8 << 20

// newExchange returns the exchange for the saves, writes and loads of a client.
func newExchange(
	calls *caller, service tuskpointv1.CheckpointServiceClient, maxMessageBytes int,
) *exchange.Exchange {
	received := grpc.MaxCallRecvMsgSize(max(maxMessageBytes, minReceivedBytes))
	return exchange.New(exchange.Config{
		Open: func(ctx context.Context) (tuskpointv1.CheckpointService_ExchangeClient, error) {
			return service.Exchange(ctx, received)
		},
		Failure: func(err error) retry.Failure {
			return calls.read(context.Background(), err).retrying()
		},
		Credential:      calls.shown,
		Closed:          closedClient(),
		MaxMessageBytes: maxMessageBytes,
	})
}

// saveCheckpoint saves a checkpoint of any size.
func (c *Client) saveCheckpoint(
	ctx context.Context, request *tuskpointv1.SaveCheckpointRequest,
) (*tuskpointv1.SaveCheckpointResponse, error) {
	if request.GetLeaseId() == "" {
		request.LeaseId = c.held.of(request.GetCheckpoint().GetRef().GetThreadId())
	}
	values := c.values.changeOfSave(request)
	large := wire.DetachLarge(wire.Holders(request.GetCheckpoint().GetState().GetChannels(), request.GetWrites()))
	frame := &tuskpointv1.Frame{Call: &tuskpointv1.Frame_Save{Save: request}}
	answer, err := c.ask(ctx, frame, large, repeatable(request), request.GetDurability())
	if err != nil {
		return nil, err
	}
	c.values.apply(values, answer.GetSaved().GetRef().GetCheckpointId())
	return reached(answer.GetSaved(), request.GetDurability())
}

// saveWrites saves pending writes of any size.
func (c *Client) saveWrites(
	ctx context.Context, request *tuskpointv1.SaveWritesRequest,
) (*tuskpointv1.SaveWritesResponse, error) {
	if request.GetLeaseId() == "" {
		request.LeaseId = c.held.of(request.GetRef().GetThreadId())
	}
	values := c.values.changeOfWrites(request.GetRef(), request.GetWrites())
	large := wire.DetachLarge(wire.Holders(nil, request.GetWrites()))
	frame := &tuskpointv1.Frame{Call: &tuskpointv1.Frame_Writes{Writes: request}}
	answer, err := c.ask(ctx, frame, large, true, request.GetDurability())
	if err != nil {
		return nil, err
	}
	c.values.apply(values, request.GetRef().GetCheckpointId())
	return reached(answer.GetWritten(), request.GetDurability())
}

// reached returns the answer to a save if it has the requested durability.
func reached[A interface{ GetDurability() Durability }](answer A, asked Durability) (A, error) {
	if answer.GetDurability() < max(asked, Journaled) {
		var none A
		return none, brokenContract("a save without the acknowledgement that was asked for")
	}
	return answer, nil
}

// getSmall returns a checkpoint whose values fit a message.
func (c *Client) getSmall(
	ctx context.Context, request *tuskpointv1.GetCheckpointRequest,
) (*tuskpointv1.Checkpoint, error) {
	frame := &tuskpointv1.Frame{Call: &tuskpointv1.Frame_Get{Get: request}}
	answer, err := c.ask(ctx, frame, nil, true, Journaled)
	if err != nil {
		return nil, err
	}
	checkpoint := answer.GetGot().GetCheckpoint()
	if checkpoint == nil {
		return nil, brokenContract("a load without a checkpoint")
	}
	return checkpoint, nil
}

// ask makes a call on an exchange stream, and retries it where that is safe. Large values follow
// the frame of the call.
func (c *Client) ask(
	ctx context.Context, frame *tuskpointv1.Frame, large []*tuskpointv1.Value, again bool,
	asked Durability,
) (*tuskpointv1.Answer, error) {
	if failure := c.calls.reach(ctx, c.connection); failure != nil {
		return nil, failure
	}
	patience := c.calls.times.quick
	if asked == Certified || large != nil {
		patience = c.calls.times.long
	}
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	frame.Traceparent = traceOf(ctx)
	call, err := exchange.NewCall(frame, large, again)
	if err != nil {
		return nil, unencodable(err)
	}
	tried := retry.New(c.calls.times.quick, again)
	for {
		answer, err := c.exchange.Do(ctx, call, tried.GiveUp)
		if err != nil {
			failure := *c.calls.read(ctx, err) // other calls fail with the same error
			return nil, &failure
		}
		if answer.GetError() == nil {
			return answer, nil
		}
		failure := fromStatus(statusOf(answer.GetError()), c.calls.target)
		if last := c.calls.waitFor(ctx, tried, failure); last != nil {
			return nil, last
		}
	}
}

// traceOf returns the W3C traceparent of a call, if its context carries one in outgoing metadata.
func traceOf(ctx context.Context) string {
	if sent, _ := metadata.FromOutgoingContext(ctx); len(sent["traceparent"]) > 0 {
		return sent["traceparent"][0]
	}
	return ""
}
