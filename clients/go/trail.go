package tuskpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"google.golang.org/grpc/codes"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// TrailEntry has the calls of one kind that ended within about one second.
type TrailEntry struct {
	// BatchID is the batch that contains the entry.
	BatchID string `json:"-"`

	// Certified: the batch is in the blob store.
	Certified bool `json:"-"`

	// Who is the name of the credential; empty if the server requires none.
	Who string `json:"who"`

	// Method is the method, such as "SaveCheckpoint".
	Method string `json:"method"`

	// ThreadID is the thread that the calls named; empty if they named none.
	ThreadID string `json:"thread_id"`

	// Status is the outcome of the calls: "OK", or the name of a gRPC status.
	Status string `json:"status"`

	// Calls is the number of the calls.
	Calls uint64 `json:"calls"`

	// First is the time at which the first of the calls ended.
	First time.Time `json:"first"`

	// Last is the time at which the last of the calls ended.
	Last time.Time `json:"last"`
}

// Trail yields the entries of the audit trail, oldest first; it needs the scope "admin". The
// sequence ends with the first error.
//
// Errors: [ErrDataLoss] if a batch is malformed, or was changed or left out.
func (c *Client) Trail(ctx context.Context) iter.Seq2[TrailEntry, error] {
	return func(yield func(TrailEntry, error) bool) {
		after, hash := "", ""
		for {
			page, err := c.admin.ListTrail(ctx, &tuskpointv1.ListTrailRequest{AfterBatchId: after})
			if err != nil {
				yield(TrailEntry{}, err)
				return
			}
			if len(page.GetBatches()) == 0 {
				return
			}
			for _, batch := range page.GetBatches() {
				entries, err := trailEntries(batch, hash)
				if err != nil {
					yield(TrailEntry{}, err)
					return
				}
				for _, entry := range entries {
					if !yield(entry, nil) {
						return
					}
				}
				sum := sha256.Sum256(batch.GetContent())
				after, hash = batch.GetBatchId(), hex.EncodeToString(sum[:])
			}
		}
	}
}

// trailEntries returns the entries of a batch that follows the batch with this hash.
func trailEntries(batch *tuskpointv1.TrailBatch, previous string) ([]TrailEntry, error) {
	var content struct {
		Previous *string      `json:"previous"`
		Entries  []TrailEntry `json:"entries"`
	}
	if err := json.Unmarshal(batch.GetContent(), &content); err != nil {
		return nil, brokenTrail(batch, "it is malformed: "+err.Error())
	}
	if content.Previous == nil || *content.Previous != previous {
		return nil, brokenTrail(batch,
			"it does not name the batch before: one was changed or left out")
	}
	if content.Entries == nil {
		return nil, brokenTrail(batch, "it is malformed: it has no entries")
	}
	for i := range content.Entries {
		if entry := content.Entries[i]; entry.Method == "" || entry.Calls == 0 {
			return nil, brokenTrail(batch, "it is malformed: an entry has no method or no calls")
		}
		content.Entries[i].BatchID = batch.GetBatchId()
		content.Entries[i].Certified = batch.GetCertified()
	}
	return content.Entries, nil
}

func brokenTrail(batch *tuskpointv1.TrailBatch, problem string) *Error {
	return &Error{
		Status:   codes.DataLoss,
		Message:  fmt.Sprintf("the trail is broken at batch %s: %s", batch.GetBatchId(), problem),
		Metadata: map[string]string{"batch_id": batch.GetBatchId()},
		kind:     dataLoss,
	}
}
