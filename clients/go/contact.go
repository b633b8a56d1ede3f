package tuskpoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint/internal/retry"
)

const (
	// firstAnswer is the time during which a call tries to reach a target that has never answered.
	firstAnswer = 5 * time.Second

	// warnAfter is the time without any answer after which a warning is due.
	warnAfter = 2 * time.Second

	// lastAttempt is the time that the last attempt may take.
	lastAttempt = 500 * time.Millisecond

	// warnPause is the shortest time between two warnings about one target.
	warnPause = time.Minute
)

var (
	answered sync.Map // the targets that have answered this process
	warned   sync.Map // time of the last warning of each target
)

// contacting marks the context of a health check, which must not wait for another health check.
type contacting struct{}

// reach waits until the target has answered this process for the first time: a wrong address, or a
// server that was not started, is reported earlier than the failure of a known server.
func (c *caller) reach(ctx context.Context, connection *grpc.ClientConn) *Error {
	if c.answered.Load() {
		return nil
	}
	if _, is := answered.Load(c.target); is {
		c.answered.Store(true)
		return nil
	}
	failure := c.contact(ctx, connection)
	if failure == nil {
		answered.Store(c.target, true)
		c.answered.Store(true)
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return cancelledBy(ctx, c.target)
	}
	final := *failure
	final.final = true
	return &final
}

// contact calls the target until it answers, or no time is left for another attempt. The last
// attempt starts when the time is up, so that a server that starts within the time is reached.
func (c *caller) contact(ctx context.Context, connection *grpc.ClientConn) *Error {
	started := time.Now()
	giveUp := started.Add(c.times.firstAnswer)
	for failures := 1; ; failures++ {
		mark := giveUp
		if warning := started.Add(warnAfter); time.Now().Before(warning) && warning.Before(giveUp) {
			mark = warning
		}
		failure := c.check(ctx, connection, time.Until(mark), started)
		if failure == nil || failure.retrying().Final || ctx.Err() != nil {
			return failure
		}
		if waited := time.Since(started); waited >= warnAfter && time.Now().Before(giveUp) {
			c.warn(failure)
			mark = giveUp
		}
		pause := failure.retrying().Pause(failures, rand.Float64())
		if !retry.Sleep(ctx, min(pause, time.Until(mark))) {
			return failure
		}
		connection.ResetConnectBackoff()
		if !time.Now().Before(giveUp) {
			if c.check(ctx, connection, lastAttempt, started, grpc.WaitForReady(true)) == nil {
				return nil
			}
			return failure
		}
	}
}

// check makes a health check, which any server answers, even a server without this service. It
// returns the failure if there is no answer.
func (c *caller) check(
	ctx context.Context, connection *grpc.ClientConn, timeout time.Duration, started time.Time,
	options ...grpc.CallOption,
) *Error {
	asking, cancel := context.WithTimeout(context.WithValue(ctx, contacting{}, true), timeout)
	defer cancel()
	request, response := &healthv1.HealthCheckRequest{}, &healthv1.HealthCheckResponse{}
	err := connection.Invoke(asking, healthv1.Health_Check_FullMethodName, request, response, options...)
	if err == nil {
		return nil
	}
	failure := c.read(asking, err)
	switch {
	case failure.Reason != "":
		return nil
	case failure.Status == codes.DeadlineExceeded:
		waited := fmt.Sprintf("no answer within %.1f s", time.Since(started).Seconds())
		return fromStatus(status.New(codes.Unavailable, waited), c.target)
	case failure.Status == codes.Internal:
		return c.dropped(failure)
	case failure.Status == codes.Unavailable, failure.Status == codes.Canceled, failure.kind == clientClosed:
		return failure
	}
	return nil
}

// warn logs that the target has not answered yet, unless the warning was logged less than a minute
// ago.
func (c *caller) warn(failure *Error) {
	now := time.Now()
	last, is := warned.Swap(c.target, now)
	if is && now.Sub(last.(time.Time)) < warnPause {
		warned.Store(c.target, last)
		return
	}
	c.logger().Warn("still waiting: " + failure.Message)
}
