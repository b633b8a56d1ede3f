package tuskpoint

import (
	"context"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// Info returns version, limits, capabilities and backends of the server.
func (c *Client) Info(ctx context.Context) (*tuskpointv1.GetServerInfoResponse, error) {
	return c.admin.GetServerInfo(ctx, &tuskpointv1.GetServerInfoRequest{})
}

// Status returns the state of the archive: backlog, expiry, health and the newest catalog.
func (c *Client) Status(ctx context.Context) (*tuskpointv1.GetArchiveStatusResponse, error) {
	return c.admin.GetArchiveStatus(ctx, &tuskpointv1.GetArchiveStatusRequest{})
}

// Flush certifies everything that was journaled before the call, and returns then.
//
// Errors: [ErrUnavailable] if the blob store does not answer. Nothing is lost then, and the server
// tries again.
func (c *Client) Flush(ctx context.Context) (*tuskpointv1.FlushResponse, error) {
	return c.admin.Flush(ctx, &tuskpointv1.FlushRequest{})
}
