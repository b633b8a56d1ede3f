// Command interop is the proof that TuskPoint's contract is not Python's: it
// knows only proto/tuskpoint/v1. It saves a checkpoint, loads it, lists the
// thread, reads an error by its reason and deletes the thread, and prints what
// it saw as one line of JSON.
//
//	interop HOST:PORT
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	tuskpoint "tuskpoint.test/interop/gen/tuskpoint/v1"
)

const (
	threadID  = "go-thread"
	missingID = "00000000-0000-6000-8000-000000000000"
	plan      = `{"steps":["draft","review"],"done":false,"author":"Grüße 🐘"}`
	metadata  = `{"source":"loop","step":1}`
)

// report is the line that the program prints.
type report struct {
	CheckpointID  string          `json:"checkpoint_id"`
	Durability    string          `json:"durability"`
	ValueType     string          `json:"value_type"`
	Value         json.RawMessage `json:"value"`
	BytesEqual    bool            `json:"bytes_equal"`
	MetadataEqual bool            `json:"metadata_equal"`
	DigestEqual   bool            `json:"digest_equal"`
	Listed        []string        `json:"listed"`
	MissingCode   string          `json:"missing_code"`
	MissingReason string          `json:"missing_reason"`
	MissingDomain string          `json:"missing_domain"`
	Deleted       uint64          `json:"deleted"`
	DeletedCode   string          `json:"deleted_code"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: interop HOST:PORT")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

func run(target string) error {
	channel, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return err
	}
	defer channel.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	checkpoints := tuskpoint.NewCheckpointServiceClient(channel)
	threads := tuskpoint.NewThreadServiceClient(channel)

	saved, err := checkpoints.SaveCheckpoint(ctx, &tuskpoint.SaveCheckpointRequest{
		Checkpoint: checkpoint(),
		Durability: tuskpoint.Durability_DURABILITY_JOURNALED,
		AgentId:    "planner",
	})
	if err != nil {
		return fmt.Errorf("save: %w", err)
	}
	seen := report{
		CheckpointID: saved.GetRef().GetCheckpointId(),
		Durability:   saved.GetDurability().String(),
	}

	loaded, err := load(ctx, checkpoints, saved.GetRef())
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	channels := loaded.GetState().GetChannels()
	if len(channels) != 1 {
		return fmt.Errorf("load: %d channels instead of 1", len(channels))
	}
	value := channels[0].GetValue()
	seen.ValueType = value.GetType()
	seen.Value = json.RawMessage(value.GetData())
	seen.BytesEqual = string(value.GetData()) == plan
	seen.MetadataEqual = string(loaded.GetMetadataJson()) == metadata
	seen.DigestEqual = bytes.Equal(channels[0].GetDigest(), digest(value))

	if seen.Listed, err = list(ctx, checkpoints); err != nil {
		return fmt.Errorf("list: %w", err)
	}

	_, err = checkpoints.GetCheckpoint(ctx, &tuskpoint.GetCheckpointRequest{
		Ref: &tuskpoint.CheckpointRef{ThreadId: threadID, CheckpointId: missingID},
	})
	seen.MissingCode = status.Code(err).String()
	if info := errorInfo(err); info != nil {
		seen.MissingReason = info.GetReason()
		seen.MissingDomain = info.GetDomain()
	}

	deleted, err := threads.DeleteThread(ctx, &tuskpoint.DeleteThreadRequest{ThreadId: threadID})
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	seen.Deleted = deleted.GetDeletedCheckpoints()
	_, err = checkpoints.GetCheckpoint(ctx, &tuskpoint.GetCheckpointRequest{Ref: saved.GetRef()})
	seen.DeletedCode = status.Code(err).String()

	return json.NewEncoder(os.Stdout).Encode(seen)
}

// checkpoint returns a root checkpoint with one channel, whose value is JSON;
// its ID is left to the server.
func checkpoint() *tuskpoint.Checkpoint {
	return &tuskpoint.Checkpoint{
		Ref: &tuskpoint.CheckpointRef{ThreadId: threadID},
		State: &tuskpoint.CheckpointState{
			SchemaVersion: 4,
			Ts:            time.Now().UTC().Format(time.RFC3339Nano),
			Channels: []*tuskpoint.Channel{{
				Name:    "plan",
				Version: &tuskpoint.Version{Kind: &tuskpoint.Version_Integer{Integer: 1}},
				Content: &tuskpoint.Channel_Value{
					Value: &tuskpoint.Value{Type: "json", Data: []byte(plan)},
				},
			}},
		},
		MetadataJson: []byte(metadata),
	}
}

// load reads a checkpoint of any size: its header, then the chunks of its large
// values, of which this program's own checkpoint has none.
func load(ctx context.Context, client tuskpoint.CheckpointServiceClient,
	ref *tuskpoint.CheckpointRef) (*tuskpoint.Checkpoint, error) {
	stream, err := client.LoadCheckpoint(ctx, &tuskpoint.LoadCheckpointRequest{
		Ref: ref, View: tuskpoint.View_VIEW_FULL,
	})
	if err != nil {
		return nil, err
	}
	var loaded *tuskpoint.Checkpoint
	for {
		frame, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && loaded == nil:
			return nil, errors.New("the stream ended without a checkpoint")
		case errors.Is(err, io.EOF):
			return loaded, nil
		case err != nil:
			return nil, err
		case frame.GetCheckpoint() != nil:
			loaded = frame.GetCheckpoint()
		default:
			return nil, errors.New("a small value came in chunks")
		}
	}
}

// list returns the IDs of the thread's checkpoints, newest first.
func list(ctx context.Context, client tuskpoint.CheckpointServiceClient) ([]string, error) {
	thread := threadID
	stream, err := client.ListCheckpoints(ctx, &tuskpoint.ListCheckpointsRequest{
		ThreadId: &thread, View: tuskpoint.View_VIEW_ENTRY,
	})
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, frame.GetCheckpoint().GetRef().GetCheckpointId())
	}
}

// digest is the contract's name for a value: SHA-256 over type, zero byte, data.
func digest(value *tuskpoint.Value) []byte {
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(value.GetType()), value.GetData()}, []byte{0}))
	return sum[:]
}

// errorInfo returns the machine-readable part of an error, or nil.
func errorInfo(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}
