package tuskpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

func TestATrailOfWhichABatchWasChangedOrLeftOutIsRefused(t *testing.T) {
	const entry = `{"who":"a","method":"Flush","thread_id":"","status":"OK","calls":2,` +
		`"first":"2026-11-28T10:00:00+00:00","last":"2026-11-28T10:00:00+00:00"}`
	first := []byte(`{"previous":"","entries":[` + entry + `]}`)
	sum := sha256.Sum256(first)
	hash := hex.EncodeToString(sum[:])
	entries, err := trailEntries(&tuskpointv1.TrailBatch{BatchId: "1", Content: first}, "")
	if err != nil || len(entries) != 1 || entries[0].Calls != 2 || entries[0].BatchID != "1" {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, one := range []struct{ content, previous, problem string }{
		{string(first), hash, "it does not name the batch before"},
		{`{"entries":[]}`, "", "it does not name the batch before"},
		{`{"previous":""}`, "", "no entries"},
		{`{"previous":"","entries":1}`, "", "malformed"},
		{`{"previous":"","entries":[{}]}`, "", "no method"},
		{`{`, "", "malformed"},
	} {
		batch := &tuskpointv1.TrailBatch{BatchId: "2", Content: []byte(one.content)}
		_, err := trailEntries(batch, one.previous)
		if !errors.Is(err, ErrDataLoss) || !strings.Contains(err.Error(), one.problem) {
			t.Errorf("%s: %v", one.content, err)
		}
	}
}
