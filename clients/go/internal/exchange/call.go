package exchange

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

const (
	// overhead is an upper bound of the bytes of a frame besides its body: number, timeout and
	// length.
	overhead = 64

	framesField = protowire.Number(2) // of ExchangeRequest
)

// Call is one call, encoded by its caller, so that streams only copy bytes and a call that cannot
// be encoded does no harm to other calls.
type Call struct {
	body       []byte               // the encoded frame, without number and timeout
	large      []*tuskpointv1.Value // values that follow in chunks
	change     bool                 // the call is a save or writes
	repeatable bool
}

// NewCall encodes a call: a frame without number and timeout, and the large values that it
// announces, in order. A repeatable call may be sent again if it is unknown whether it was applied.
func NewCall(frame *tuskpointv1.Frame, large []*tuskpointv1.Value, repeatable bool) (*Call, error) {
	body, err := proto.Marshal(frame)
	if err != nil {
		return nil, err
	}
	return &Call{body, large, frame.GetGet() == nil, repeatable}, nil
}

// checkSize returns an error for a call that does not fit a message.
func (c *Call) checkSize(most int) error {
	if size := len(c.body) + overhead; size > most {
		return status.Error(codes.ResourceExhausted,
			fmt.Sprintf("the call takes %d bytes, and a message at most %d", size, most))
	}
	return nil
}

// appendFrame appends a frame to an encoded ExchangeRequest.
func appendFrame(message []byte, head *tuskpointv1.Frame, body []byte) ([]byte, error) {
	encoded, err := proto.Marshal(head)
	if err != nil {
		return nil, err
	}
	message = protowire.AppendTag(message, framesField, protowire.BytesType)
	message = protowire.AppendVarint(message, uint64(len(encoded)+len(body)))
	return append(append(message, encoded...), body...), nil
}

// head returns the part of a frame that differs for each send.
func head(id uint64, deadline, now time.Time) *tuskpointv1.Frame {
	frame := &tuskpointv1.Frame{Id: id}
	if !deadline.IsZero() {
		frame.Timeout = durationpb.New(max(deadline.Sub(now), 1))
	}
	return frame
}

// encoded returns a message of encoded frames: the bytes of fields that are not parsed are sent
// unchanged.
func encoded(hello *tuskpointv1.Hello, frames []byte) *tuskpointv1.ExchangeRequest {
	message := &tuskpointv1.ExchangeRequest{Hello: hello}
	message.ProtoReflect().SetUnknown(frames)
	return message
}
