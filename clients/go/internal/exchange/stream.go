package exchange

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint/internal/retry"
	"tuskpoint.dev/go/tuskpoint/internal/wire"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// errReplaced ends a stream on this side. Its calls may continue with another credential.
var errReplaced = status.Error(codes.Unauthenticated, "the credential was replaced")

// run carries the calls of a lane until it is closed, on as many streams as needed.
func (l *lane) run() {
	defer l.running.Done()
	for l.ctx.Err() == nil {
		if l.idle() {
			select {
			case <-l.wake:
			case <-l.ctx.Done():
			}
			continue
		}
		shown := l.config.Credential()
		opened, err := l.stream(shown)
		if l.ctx.Err() != nil {
			break
		}
		pause := l.broken(err, opened, shown != l.config.Credential())
		if !l.idle() {
			retry.Sleep(l.ctx, pause)
		}
	}
	l.fail(l.config.Closed)
}

// stream opens a stream and writes on it until it ends. It returns whether the stream was opened,
// and the cause of its end. The stream is then closed on this side, and no goroutine reads it.
func (l *lane) stream(shown string) (bool, error) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	stream, err := l.config.Open(ctx)
	if err != nil {
		return false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- l.read(stream, cancel) }()
	err = l.write(stream, shown, ended)
	if errors.Is(err, io.EOF) {
		return true, <-ended // the reader returns the cause
	}
	cancel()
	<-ended
	return true, err
}

// read processes the answers of a stream until the stream ends.
func (l *lane) read(
	stream tuskpointv1.CheckpointService_ExchangeClient, cancel context.CancelFunc,
) error {
	// A writer that waits for room to send must not wait for a stream that is not read.
	defer cancel()
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Unavailable, "the server ended the stream")
		}
		if err == nil {
			err = l.take(response)
		}
		if err != nil {
			return err
		}
	}
}

// write sends waiting calls until the stream ends. It returns the cause, or io.EOF if the reader
// knows the cause.
func (l *lane) write(
	stream tuskpointv1.CheckpointService_ExchangeClient, shown string, ended chan error,
) error {
	hello := l.opening()
	for {
		if l.outdated(shown) {
			return errReplaced
		}
		made := l.next()
		if made == nil {
			select {
			case <-l.wake:
				continue
			case err := <-ended:
				ended <- err
				return io.EOF
			}
		}
		if err := send(stream, hello, made); err != nil {
			return err
		}
		hello = nil
	}
}

// send sends a batch: one message with its frames, then one for each chunk of its last call.
func send(
	stream tuskpointv1.CheckpointService_ExchangeClient, hello *tuskpointv1.Hello, made *batch,
) error {
	size, now := 0, time.Now()
	for _, call := range made.calls {
		size += len(call.call.body) + overhead
	}
	frames, err := make([]byte, 0, size), error(nil)
	for _, call := range made.calls {
		frames, err = appendFrame(frames, head(call.id, call.deadline, now), call.call.body)
		if err != nil {
			return err
		}
	}
	if err := stream.Send(encoded(hello, frames)); err != nil {
		return err
	}
	last := made.calls[len(made.calls)-1]
	return wire.Chunks(last.call.large, func(chunk *tuskpointv1.ValueChunk) error {
		frame := &tuskpointv1.Frame{Id: last.id, Call: &tuskpointv1.Frame_Chunk{Chunk: chunk}}
		return stream.Send(&tuskpointv1.ExchangeRequest{Frames: []*tuskpointv1.Frame{frame}})
	})
}
