package tuskpoint_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

func TestAHandOffIsAdopted(t *testing.T) {
	client, thread := dial(t), newThread()
	saved := must(client.Save(within(t), thread, map[string]any{"plan": []string{"écrire"}, "n": 7},
		&tuskpoint.SaveOptions{Summary: "Planned."}))(t)
	descriptor := must(client.HandOff(within(t), thread,
		&tuskpoint.HandOffOptions{ToAgent: "writer"}))(t)
	want(t, "the source", descriptor.Source, thread+":"+saved.CheckpointID)
	want(t, "the agent", descriptor.ToAgent, "writer")
	want(t, "the summary", descriptor.Summary, "Planned.")

	// The descriptor travels as JSON.
	text := must(json.Marshal(descriptor))(t)
	received := must(tuskpoint.ParseDescriptor(text))(t)
	want(t, "what was received", *received, *descriptor)

	var stages []tuskpoint.AdoptStage
	adoption := must(client.Adopt(within(t), received, thread+"-adopted", &tuskpoint.AdoptOptions{
		OnProgress: func(progress tuskpoint.AdoptProgress) { stages = append(stages, progress.Stage) },
	}))(t)
	want(t, "the thread", adoption.NewThreadID, thread+"-adopted")
	want(t, "the checkpoint", adoption.CheckpointID, saved.CheckpointID)
	want(t, "it is verified", adoption.Verified, true)
	want(t, "who signed", adoption.Signer, descriptor.Signer)
	want(t, "it has a blob", adoption.BlobID != "", true)
	if expected := []tuskpoint.AdoptStage{
		tuskpoint.Fetching, tuskpoint.Fetched, tuskpoint.Verified, tuskpoint.Adopted,
	}; !slices.Equal(stages, expected) {
		t.Errorf("the stages are %v", stages)
	}
	loaded := must(client.Load(within(t), thread+"-adopted", "", nil))(t)
	want(t, "where it came from", loaded.Lineage.AdoptedFrom, descriptor.Source)
	want(t, "the plan", string(must(loaded.State())(t)["plan"]), `["écrire"]`)

	_, err := client.Adopt(within(t), received, thread+"-adopted", nil)
	wantError(t, err, tuskpoint.ErrAlreadyExists, "THREAD_EXISTS")
}

func TestAHandOffIsSealedToItsRecipient(t *testing.T) {
	directory := t.TempDir()
	flags := []string{}
	for flag, content := range map[string]string{
		"--key-file": base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"--identity": "AGE-SECRET-KEY-1PJ7ZWZ8SLHD8M4K6GC7WF4SKEPJQQFEXC6FEXKJ45CRRRQLRWGPQAVDX8W",
	} {
		file := filepath.Join(directory, flag)
		if err := os.WriteFile(file, []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, flag, file)
	}
	client, thread := dialTo(t, startServer(t, flags...).Target), newThread()
	save(t, client, thread, map[string]any{"a": 1})
	info := must(client.Admin().GetServerInfo(within(t), &tuskpointv1.GetServerInfoRequest{}))(t)
	recipient := info.GetRecipients()[0]
	descriptor := must(client.HandOff(within(t), thread,
		&tuskpoint.HandOffOptions{Recipient: recipient}))(t)
	want(t, "the key is sealed", descriptor.SealedKey != "" && descriptor.Key == "", true)
	received := must(tuskpoint.ParseDescriptor(must(json.Marshal(descriptor))(t)))(t)
	want(t, "what was received", *received, *descriptor)
	must(client.Adopt(within(t), received, thread+"-adopted", nil))(t)

	received.SealedKey = "AAAA"
	_, err := client.Adopt(within(t), received, thread+"-changed", nil)
	wantError(t, err, tuskpoint.ErrPreconditionFailed, "KEY_MISSING")
	_, err = dial(t).HandOff(within(t), thread, &tuskpoint.HandOffOptions{Recipient: recipient})
	wantError(t, err, tuskpoint.ErrPreconditionFailed, "SEALING_UNAVAILABLE")
}

func TestAForgedDescriptorIsRefused(t *testing.T) {
	client, thread := dial(t), newThread()
	save(t, client, thread, map[string]any{"a": 1})
	honest := must(client.HandOff(within(t), thread, nil))(t)

	forged := *honest
	forged.BlobSHA256 = strings.Repeat("0", 64)
	_, err := client.Adopt(within(t), &forged, thread+"-forged", nil)
	wantError(t, err, tuskpoint.ErrPreconditionFailed, "SIGNATURE_REFUSED")
	others := &tuskpoint.AdoptOptions{RequireSigners: []string{strings.Repeat("ab", 32)}}
	_, err = client.Adopt(within(t), honest, thread+"-forged", others)
	wantError(t, err, tuskpoint.ErrPreconditionFailed, "SIGNATURE_REFUSED")

	honest.Signer, honest.Signature = "", ""
	forged.Signer, forged.Signature = "", ""
	_, err = client.Adopt(within(t), &forged, thread+"-forged", nil)
	failure := wantError(t, err, tuskpoint.ErrHashMismatch, "BLOB_HASH_MISMATCH")
	want(t, "it is data loss too", errors.Is(err, tuskpoint.ErrDataLoss), true)
	want(t, "the actual hash", failure.Metadata["actual"], honest.BlobSHA256)

	forged = *honest
	forged.CheckpointID = "1f000000-0000-6000-8000-00000000dead"
	forged.Source = thread + ":" + forged.CheckpointID
	_, err = client.Adopt(within(t), &forged, thread+"-forged", nil)
	wantError(t, err, tuskpoint.ErrDescriptorMismatch, "DESCRIPTOR_MISMATCH")
	want(t, "it is an invalid request too", errors.Is(err, tuskpoint.ErrInvalidRequest), true)

	_, err = client.Load(within(t), thread+"-forged", "", nil)
	wantError(t, err, tuskpoint.ErrNotFound, "CHECKPOINT_NOT_FOUND")
}

func TestWhatIsNoDescriptorIsRefused(t *testing.T) {
	const good = `{"source":"t:c","thread_id":"t","checkpoint_id":"c","blob_id":"b","blob_sha256":"` +
		`0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","to_agent":"","summary":""}`
	must(tuskpoint.ParseDescriptor([]byte(good)))(t)
	for name, text := range map[string]string{
		"no JSON":        `{`,
		"no object":      `[]`,
		"nothing":        ``,
		"null":           `null`,
		"a key missing":  strings.Replace(good, `"blob_id":"b",`, ``, 1),
		"a key too many": strings.Replace(good, `{`, `{"more":"",`, 1),
		"a key twice":    strings.Replace(good, `{`, `{"blob_id":"b",`, 1),
		"a number":       strings.Replace(good, `"b"`, `1`, 1),
		"an object":      strings.Replace(good, `"b"`, `{}`, 1),
		"empty":          strings.Replace(good, `"b"`, `""`, 1),
		"a short hash":   strings.Replace(good, `0123456789abcdef"`, `"`, 1),
		"capital hex":    strings.Replace(good, `abcdef"`, `ABCDEF"`, 1),
		"another source": strings.Replace(good, `"t:c"`, `"t:d"`, 1),
		"no base64":      strings.Replace(good, `{`, `{"sealed_key":"AAA",`, 1),
		"more after it":  good + `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tuskpoint.ParseDescriptor([]byte(text))
			wantError(t, err, tuskpoint.ErrInvalidDescriptor, "INVALID_FIELD")
			var inside struct{ Descriptor tuskpoint.Descriptor }
			if err := json.Unmarshal([]byte(`{"Descriptor":`+text+`}`), &inside); err == nil &&
				text != "null" {
				t.Error("encoding/json took it")
			}
		})
	}
	_, err := dial(t).Adopt(within(t), nil, "", nil)
	wantError(t, err, tuskpoint.ErrInvalidDescriptor, "INVALID_FIELD")
	_, err = dial(t).Adopt(within(t), &tuskpoint.Descriptor{}, "", nil)
	wantError(t, err, tuskpoint.ErrInvalidDescriptor, "INVALID_FIELD")
}
