package tuskpoint

import (
	"context"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// Info returns version, limits, capabilities, backends and gRPC port of the server.
func (c *Client) Info(ctx context.Context) (*tuskpointv1.GetServerInfoResponse, error) {
	return c.admin.GetServerInfo(ctx, &tuskpointv1.GetServerInfoRequest{})
}

// Status returns the state of the archive: backlog, expiry, health and the newest catalog.
func (c *Client) Status(ctx context.Context) (*tuskpointv1.GetArchiveStatusResponse, error) {
	return c.admin.GetArchiveStatus(ctx, &tuskpointv1.GetArchiveStatusRequest{})
}

// Flush certifies everything that was journaled before the call, and returns after that.
//
// Errors: [ErrUnavailable] if the blob store does not answer. Nothing is lost then, and the server
// retries.
func (c *Client) Flush(ctx context.Context) (*tuskpointv1.FlushResponse, error) {
	return c.admin.Flush(ctx, &tuskpointv1.FlushRequest{})
}

// AcceptClock makes the journal follow the server's clock, and returns the clock step that stopped
// deletions, which continue after the call; nil if no step stopped them. It needs the scope
// "admin".
func (c *Client) AcceptClock(ctx context.Context) (*tuskpointv1.ClockJump, error) {
	answer, err := c.admin.AcceptClock(ctx, &tuskpointv1.AcceptClockRequest{})
	return answer.GetAccepted(), err
}
