package tuskpoint_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"tuskpoint.dev/go/tuskpoint"
)

func TestOnlyTheHolderChangesAThread(t *testing.T) {
	client, other, thread := dial(t), dial(t), newThread()
	options := &tuskpoint.LeaseOptions{Owner: "first", TTL: time.Second}
	err := client.WithLease(within(t), thread, options,
		func(ctx context.Context, lease *tuskpoint.Lease) error {
			id := save(t, client, thread, map[string]any{"a": 1})
			_, err := other.Save(ctx, thread, map[string]any{"a": 2}, nil)
			failure := wantError(t, err, tuskpoint.ErrThreadBusy, "THREAD_BUSY")
			want(t, "the driver", failure.Metadata["owner"], "first")
			want(t, "it is a conflict", errors.Is(err, tuskpoint.ErrConflict), true)
			_, err = other.AcquireLease(ctx, thread, nil)
			wantError(t, err, tuskpoint.ErrThreadBusy, "THREAD_BUSY")
			time.Sleep(1500 * time.Millisecond) // longer than the time of the lease
			must(client.Rollback(ctx, thread, id, nil))(t)
			described := must(other.GetThread(ctx, thread))(t).GetLease()
			want(t, "the owner", described.GetOwner(), "first")
			want(t, "the hidden ID", described.GetLeaseId(), "")
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	save(t, other, thread, map[string]any{"a": 2})
	save(t, client, thread, map[string]any{"a": 3})
}

func TestADriverThatWasTakenOverIsTold(t *testing.T) {
	client, other, thread := dial(t), dial(t), newThread()
	options := &tuskpoint.LeaseOptions{TTL: time.Second}
	err := client.WithLease(within(t), thread, options,
		func(ctx context.Context, _ *tuskpoint.Lease) error {
			taken := must(other.AcquireLease(ctx, thread, &tuskpoint.LeaseOptions{
				Owner: "second", OnBusy: tuskpoint.TakeOverIfBusy,
			}))(t)
			<-ctx.Done()
			want(t, "the cause", errors.Is(context.Cause(ctx), tuskpoint.ErrLeaseLost), true)
			must(other.KeepLease(within(t), taken))(t)
			_, err := client.Save(within(t), thread, map[string]any{"a": 1}, nil)
			return err
		})
	failure := wantError(t, err, tuskpoint.ErrLeaseLost, "LEASE_LOST")
	want(t, "the driver", failure.Metadata["owner"], "second")
}

func TestAClientDrivesTheThreadOfItsEnvironment(t *testing.T) {
	parent, thread := dial(t), newThread()+":a ☂"
	lease := must(parent.AcquireLease(within(t), thread, nil))(t)
	other := dial(t)
	t.Setenv(tuskpoint.LeaseVariable, lease.GetLeaseId()+":"+thread)
	child := dial(t)
	save(t, child, thread, map[string]any{"a": 1})
	save(t, child, newThread(), map[string]any{"a": 1})
	_, err := other.Save(within(t), thread, map[string]any{"a": 2}, nil)
	wantError(t, err, tuskpoint.ErrThreadBusy, "THREAD_BUSY")
	for _, malformed := range []string{"no-colon", ":thread", "lease:"} {
		t.Setenv(tuskpoint.LeaseVariable, malformed)
		_, err := tuskpoint.Dial("")
		wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
	}
}

func TestASecondDriverWaitsForItsTurn(t *testing.T) {
	client, other, thread := dial(t), dial(t), newThread()
	held := must(client.AcquireLease(within(t), thread, nil))(t)
	done := make(chan error, 1)
	go func() {
		lease, err := other.AcquireLease(within(t), thread,
			&tuskpoint.LeaseOptions{Wait: 10 * time.Second})
		if err == nil {
			_, err = other.ReleaseLease(within(t), lease)
		}
		done <- err
	}()
	want(t, "the lease held", must(client.ReleaseLease(within(t), held))(t), true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want(t, "the lease had ended", must(client.ReleaseLease(within(t), held))(t), false)
}
