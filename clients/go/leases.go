package tuskpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// Lease is the right to change a thread.
type Lease = tuskpointv1.Lease

// OnBusy says what to do if another driver has the thread.
type OnBusy = tuskpointv1.OnBusy

// What to do if another driver has the thread.
const (
	// RejectIfBusy fails with [ErrThreadBusy]: the default.
	RejectIfBusy = tuskpointv1.OnBusy_ON_BUSY_REJECT

	// WaitIfBusy waits for the end of the other lease.
	WaitIfBusy = tuskpointv1.OnBusy_ON_BUSY_WAIT

	// TakeOverIfBusy ends the other lease: its driver gets [ErrLeaseLost] at its next change.
	TakeOverIfBusy = tuskpointv1.OnBusy_ON_BUSY_TAKE_OVER
)

const (
	defaultLeaseWait = 30 * time.Second
	leaseBeats       = 3 // extensions in the time of a lease
)

// LeaseOptions are the settings of a lease.
type LeaseOptions struct {
	// Owner is the name of the driver, for people. The default is this machine and process.
	Owner string

	// TTL is the time after which the lease ends unless it is extended, 1 second to 1 hour. The
	// default is 30 seconds.
	TTL time.Duration

	// OnBusy says what to do if another driver has the thread. The default is [WaitIfBusy] if Wait
	// is set, else [RejectIfBusy].
	OnBusy OnBusy

	// Wait is the longest wait with [WaitIfBusy]. The default is 30 seconds.
	Wait time.Duration

	// Advisory says whether the server accepts changes of callers without a lease.
	Advisory bool
}

// heldLeases are the leases under which a client changes threads, by thread.
type heldLeases struct {
	mutex sync.Mutex
	ids   map[string]string
}

// leasesOf returns the lease in a value of [LeaseVariable], by thread.
func leasesOf(text string) (map[string]string, error) {
	id, threadID, _ := strings.Cut(text, ":")
	switch {
	case text == "":
		return nil, nil
	case id == "" || threadID == "":
		return nil, invalidField(LeaseVariable, fmt.Sprintf("it must be the ID of a lease, a colon and "+
			"the thread, not %q; `tuskpoint lease run THREAD -- COMMAND` sets it", text))
	}
	return map[string]string{threadID: id}, nil
}

func (h *heldLeases) enter(lease *Lease) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.ids == nil {
		h.ids = map[string]string{}
	}
	h.ids[lease.GetThreadId()] = lease.GetLeaseId()
}

func (h *heldLeases) leave(lease *Lease) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.ids[lease.GetThreadId()] == lease.GetLeaseId() {
		delete(h.ids, lease.GetThreadId())
	}
}

// of returns the lease of a thread, or "".
func (h *heldLeases) of(threadID string) string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.ids[threadID]
}

// AcquireLease acquires the lease of a thread, which need not exist. The caller extends the lease
// with [Client.KeepLease]; prefer [Client.WithLease]. Until [Client.ReleaseLease], the client names
// the lease in each save, write, rollback and effect of the thread. Options may be nil.
//
// Errors: [ErrThreadBusy] if another driver has the thread.
func (c *Client) AcquireLease(
	ctx context.Context, threadID string, options *LeaseOptions,
) (*Lease, error) {
	given := valueOf(options)
	request := &tuskpointv1.AcquireLeaseRequest{
		ThreadId: threadID, Owner: given.Owner, OnBusy: given.OnBusy, Advisory: given.Advisory,
	}
	if given.Owner == "" {
		request.Owner = thisOwner()
	}
	if given.TTL != 0 {
		request.Ttl = durationpb.New(given.TTL)
	}
	if given.OnBusy == tuskpointv1.OnBusy_ON_BUSY_UNSPECIFIED && given.Wait != 0 {
		request.OnBusy = WaitIfBusy
	}
	if request.GetOnBusy() == WaitIfBusy {
		if given.Wait == 0 {
			given.Wait = defaultLeaseWait
		}
		request.Wait = durationpb.New(given.Wait)
	}
	answer, err := c.leases.AcquireLease(ctx, request)
	if err != nil {
		return nil, err
	}
	c.held.enter(answer.GetLease())
	return answer.GetLease(), nil
}

// KeepLease extends a lease: its time starts again. It returns the lease with its new end.
//
// Errors: [ErrLeaseLost] if the lease has ended.
func (c *Client) KeepLease(ctx context.Context, lease *Lease) (*Lease, error) {
	answer, err := c.leases.KeepLease(ctx, &tuskpointv1.KeepLeaseRequest{
		ThreadId: lease.GetThreadId(), LeaseId: lease.GetLeaseId(),
	})
	return answer.GetLease(), err
}

// ReleaseLease ends a lease, and reports whether the lease held until now.
func (c *Client) ReleaseLease(ctx context.Context, lease *Lease) (bool, error) {
	c.held.leave(lease)
	answer, err := c.leases.ReleaseLease(ctx, &tuskpointv1.ReleaseLeaseRequest{
		ThreadId: lease.GetThreadId(), LeaseId: lease.GetLeaseId(),
	})
	return answer.GetReleased(), err
}

// WithLease runs some work as the only driver of a thread. Meanwhile the client extends the lease
// in the background, and names the lease in each save, write, rollback and effect of the thread. If
// the lease was lost, the context of the work is cancelled with the cause [ErrLeaseLost], and each of
// these calls fails with [ErrLeaseLost]. Options may be nil.
//
// Errors: [ErrThreadBusy] if another driver has the thread, or the error of the work.
func (c *Client) WithLease(
	ctx context.Context, threadID string, options *LeaseOptions,
	work func(ctx context.Context, lease *Lease) error,
) error {
	lease, err := c.AcquireLease(ctx, threadID, options)
	if err != nil {
		return err
	}
	working, cancel := context.WithCancelCause(ctx)
	beaten := make(chan struct{})
	go func() {
		defer close(beaten)
		c.beat(working, lease, cancel)
	}()
	defer func() {
		cancel(nil)
		<-beaten
		// The work is done: after a failure the time of the lease ends it.
		_, _ = c.ReleaseLease(context.WithoutCancel(ctx), lease)
	}()
	return work(working, lease)
}

// beat extends a lease until the context is done or the lease is lost.
func (c *Client) beat(ctx context.Context, lease *Lease, lost context.CancelCauseFunc) {
	ticker := time.NewTicker(lease.GetTtl().AsDuration() / leaseBeats)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if _, err := c.KeepLease(ctx, lease); errors.Is(err, ErrLeaseLost) {
				lost(err)
				return
			}
		}
	}
}
