package tuskpoint

import (
	"cmp"
	"fmt"
	"os"

	"google.golang.org/grpc"

	"tuskpoint.dev/go/tuskpoint/internal/exchange"
	targets "tuskpoint.dev/go/tuskpoint/internal/target"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// Client saves and loads the state of agents. Any number of goroutines may use it at once. Create
// one with [Dial].
type Client struct {
	calls      *caller
	connection *grpc.ClientConn
	exchange   *exchange.Exchange
	memory     memory
	values     valueCache
	held       heldLeases

	checkpoints tuskpointv1.CheckpointServiceClient
	threads     tuskpointv1.ThreadServiceClient
	history     tuskpointv1.HistoryServiceClient
	handoffs    tuskpointv1.HandoffServiceClient
	leases      tuskpointv1.LeaseServiceClient
	search      tuskpointv1.SearchServiceClient
	snapshots   tuskpointv1.SnapshotServiceClient
	store       tuskpointv1.StoreServiceClient
	effects     tuskpointv1.EffectServiceClient
	admin       tuskpointv1.AdminServiceClient
}

// Dial returns a client of the server at a target: host:port, or a gRPC name such as
// dns:///host:port or unix:///path. An empty target means TUSKPOINT_TARGET, else [DefaultTarget].
// Dial does not fail without a server: the client connects with the first call.
//
// The target for several servers of one journal is host1:port,host2:port, or a name with dns:///
// that has several addresses. Calls and streams take turns over the servers that answer.
//
// Where an option is missing, the environment is used: TUSKPOINT_TOKEN or TUSKPOINT_TOKEN_FILE,
// TUSKPOINT_CA_FILE, TUSKPOINT_CERT_FILE and TUSKPOINT_KEY_FILE, and TUSKPOINT_TLS. TLS is used if
// it is requested, if a CA or a certificate is given, or if there is a token and the target is
// another machine. The client names the lease of TUSKPOINT_LEASE, if there is one, in each change of
// its thread.
//
// Errors: [ErrInvalidRequest] if the target or an option is not valid.
func Dial(target string, options ...Option) (*Client, error) {
	set := defaults()
	for _, option := range options {
		option(set)
	}
	if err := set.settle(); err != nil {
		return nil, err
	}
	target, err := targets.Normal(cmp.Or(target, os.Getenv(TargetVariable), DefaultTarget))
	if err != nil {
		return nil, invalidField("target", err.Error())
	}
	held, err := leasesOf(os.Getenv(LeaseVariable))
	if err != nil {
		return nil, err
	}
	calls := &caller{target: target, times: set.times, token: set.token, logger: set.logger}
	connection, err := connect(target, set, calls)
	if err != nil {
		return nil, err
	}
	checkpoints := tuskpointv1.NewCheckpointServiceClient(connection)
	return &Client{
		calls:       calls,
		connection:  connection,
		held:        heldLeases{ids: held},
		values:      valueCache{maxBytes: set.valueCacheBytes},
		exchange:    newExchange(calls, checkpoints, set.maxMessageBytes),
		checkpoints: checkpoints,
		threads:     tuskpointv1.NewThreadServiceClient(connection),
		history:     tuskpointv1.NewHistoryServiceClient(connection),
		handoffs:    tuskpointv1.NewHandoffServiceClient(connection),
		leases:      tuskpointv1.NewLeaseServiceClient(connection),
		search:      tuskpointv1.NewSearchServiceClient(connection),
		snapshots:   tuskpointv1.NewSnapshotServiceClient(connection),
		store:       tuskpointv1.NewStoreServiceClient(connection),
		effects:     tuskpointv1.NewEffectServiceClient(connection),
		admin:       tuskpointv1.NewAdminServiceClient(connection),
	}, nil
}

// Close closes the connection and ends the client's goroutines. Calls in progress and later calls
// fail with [ErrClosed]; another Close does nothing.
func (c *Client) Close() error {
	if c.calls.closed.Swap(true) {
		return nil
	}
	c.exchange.Close()
	return c.connection.Close()
}

// Target returns the address of the server, or the addresses of the servers.
func (c *Client) Target() string { return c.calls.target }

// String returns the client's target, and no secret.
func (c *Client) String() string { return fmt.Sprintf("tuskpoint.Client(%s)", c.calls.target) }

// Connection returns the connection of the calls, for stubs of other services such as
// grpc.health.v1. Calls on it have the client's deadlines, retries, credentials and errors.
func (c *Client) Connection() grpc.ClientConnInterface { return c.connection }

// Checkpoints returns the typed client of CheckpointService.
func (c *Client) Checkpoints() tuskpointv1.CheckpointServiceClient { return c.checkpoints }

// Threads returns the typed client of ThreadService.
func (c *Client) Threads() tuskpointv1.ThreadServiceClient { return c.threads }

// History returns the typed client of HistoryService.
func (c *Client) History() tuskpointv1.HistoryServiceClient { return c.history }

// Leases returns the typed client of LeaseService.
func (c *Client) Leases() tuskpointv1.LeaseServiceClient { return c.leases }

// Handoffs returns the typed client of HandoffService.
func (c *Client) Handoffs() tuskpointv1.HandoffServiceClient { return c.handoffs }

// Searches returns the typed client of SearchService.
func (c *Client) Searches() tuskpointv1.SearchServiceClient { return c.search }

// Snapshots returns the typed client of SnapshotService.
func (c *Client) Snapshots() tuskpointv1.SnapshotServiceClient { return c.snapshots }

// Store returns the typed client of StoreService.
func (c *Client) Store() tuskpointv1.StoreServiceClient { return c.store }

// Effects returns the typed client of EffectService.
func (c *Client) Effects() tuskpointv1.EffectServiceClient { return c.effects }

// Admin returns the typed client of AdminService.
func (c *Client) Admin() tuskpointv1.AdminServiceClient { return c.admin }
