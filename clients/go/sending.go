package tuskpoint

import (
	"context"
	"errors"
	"io"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// saveID is the number of the one save that a stream of ours carries.
const saveID = 1

// saveCheckpoint saves a checkpoint of any size: in one message if it fits, else on a stream.
func (c *Client) saveCheckpoint(
	ctx context.Context, request *tuskpointv1.SaveCheckpointRequest,
) (*tuskpointv1.SaveCheckpointResponse, error) {
	large := detachLarge(holders(request.GetCheckpoint().GetState().GetChannels(), request.GetWrites()))
	if large == nil {
		return c.checkpoints.SaveCheckpoint(ctx, request)
	}
	begin := &tuskpointv1.SaveCheckpointsRequest{
		SaveId: saveID, Frame: &tuskpointv1.SaveCheckpointsRequest_Checkpoint{Checkpoint: request},
	}
	answer, err := c.saveOnStream(ctx, begin, large, request.GetDurability())
	return answer.GetCheckpoint(), err
}

// saveWrites saves pending writes of any size.
func (c *Client) saveWrites(
	ctx context.Context, request *tuskpointv1.SaveWritesRequest,
) (*tuskpointv1.SaveWritesResponse, error) {
	large := detachLarge(holders(nil, request.GetWrites()))
	if large == nil {
		return c.checkpoints.SaveWrites(ctx, request)
	}
	begin := &tuskpointv1.SaveCheckpointsRequest{
		SaveId: saveID, Frame: &tuskpointv1.SaveCheckpointsRequest_Writes{Writes: request},
	}
	answer, err := c.saveOnStream(ctx, begin, large, request.GetDurability())
	return answer.GetWrites(), err
}

// saveOnStream makes one save on a stream of its own, again where that is safe. Its checkpoint has
// an ID.
func (c *Client) saveOnStream(
	ctx context.Context, begin *tuskpointv1.SaveCheckpointsRequest, large []*tuskpointv1.Value,
	asked Durability,
) (*tuskpointv1.SaveCheckpointsResponse, error) {
	ctx, cancel := bounded(ctx, c.calls.times.long)
	defer cancel()
	tried := newAttempts(c.calls.times.quick, true)
	for {
		shown := c.calls.shown()
		answer, failure := c.saveOnce(ctx, begin, large, asked)
		if failure == nil {
			return answer, nil
		}
		if c.calls.replaced(shown, failure) {
			continue
		}
		if last := tried.wait(ctx, failure, c.calls.target); last != nil {
			return nil, last
		}
	}
}

func (c *Client) saveOnce(
	ctx context.Context, begin *tuskpointv1.SaveCheckpointsRequest, large []*tuskpointv1.Value,
	asked Durability,
) (*tuskpointv1.SaveCheckpointsResponse, *Error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.checkpoints.SaveCheckpoints(ctx)
	if err != nil {
		return nil, c.calls.read(ctx, err)
	}
	err = stream.Send(begin)
	if err == nil {
		err = chunks(large, func(chunk *tuskpointv1.ValueChunk) error {
			return stream.Send(&tuskpointv1.SaveCheckpointsRequest{
				SaveId: begin.GetSaveId(), Frame: &tuskpointv1.SaveCheckpointsRequest_Chunk{Chunk: chunk},
			})
		})
	}
	if err == nil {
		err = stream.CloseSend()
	}
	// EOF: the server has ended the stream, and the answer says why.
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, c.calls.read(ctx, err)
	}
	return c.savedAnswer(ctx, stream.Recv, asked)
}

// savedAnswer returns the last answer to the one save of a stream.
func (c *Client) savedAnswer(
	ctx context.Context, receive func() (*tuskpointv1.SaveCheckpointsResponse, error), asked Durability,
) (*tuskpointv1.SaveCheckpointsResponse, *Error) {
	var last *tuskpointv1.SaveCheckpointsResponse
	for {
		answer, err := receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, c.calls.read(ctx, err)
		}
		if answer.GetError() != nil {
			return nil, fromCallError(answer.GetError())
		}
		if answer.GetSaveId() != saveID || answer.GetResult() == nil {
			return nil, brokenContract("an answer to a save that was not sent")
		}
		last = answer
	}
	reached := max(last.GetCheckpoint().GetDurability(), last.GetWrites().GetDurability())
	if last == nil || reached < asked {
		return nil, brokenContract("the stream ended without the acknowledgement that was asked for")
	}
	return last, nil
}
