package tuskpoint_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"tuskpoint.dev/go/tuskpoint"
)

func item(namespace []string, key string, value map[string]any) tuskpoint.ItemChange {
	return tuskpoint.ItemChange{
		ItemKey: tuskpoint.ItemKey{Namespace: namespace, Key: key}, Value: value,
	}
}

func TestItemsArePutReadFoundListedAndDeleted(t *testing.T) {
	client, root := dial(t), newThread()
	ada, bob := []string{root, "ada"}, []string{root, "bob"}
	diet := item(ada, "diet", map[string]any{"text": "rye bread", "n": 3})
	diet.TTL = time.Hour
	pets := item(ada, "pets", map[string]any{"n": 1})
	pets.Unindexed = true
	other := item(bob, "diet", map[string]any{"n": 2})
	other.IndexPaths = []string{"n"}
	must(client.PutItems(within(t), []tuskpoint.ItemChange{diet, pets, other}, nil))(t)

	missing := tuskpoint.ItemKey{Namespace: ada, Key: "missing"}
	keys := []tuskpoint.ItemKey{diet.ItemKey, missing, pets.ItemKey}
	items := must(client.GetItems(within(t), keys, &tuskpoint.GetItemsOptions{RefreshTTL: true}))(t)
	want(t, "the number of items", len(items), 3)
	var value struct{ Text string }
	if err := json.Unmarshal(items[0].Value, &value); err != nil {
		t.Fatal(err)
	}
	want(t, "the text", value.Text, "rye bread")
	want(t, "it expires later", items[0].Expires.After(time.Now()), true)
	want(t, "the missing item", items[1], nil)
	want(t, "it never expires", items[2].Expires.IsZero(), true)

	find := func(prefix []string, options tuskpoint.SearchItemsOptions) []tuskpoint.FoundItem {
		return must(client.SearchItems(within(t), prefix, &options))(t).Items
	}
	many := tuskpoint.SearchItemsOptions{Filter: map[string]any{"n": map[string]any{"$gte": 2}}}
	want(t, "the number below ada", len(find(ada, tuskpoint.SearchItemsOptions{})), 2)
	all := find([]string{root}, many)
	want(t, "the number with two or more", len(all), 2)
	many.Offset, many.Limit = 1, 1
	want(t, "the last", find([]string{root}, many)[0].Namespace[1], all[1].Namespace[1])
	asked := &tuskpoint.SearchItemsOptions{Query: "what does she eat?"}
	answer := must(client.SearchItems(within(t), ada, asked))(t)
	want(t, "the number of warnings", len(answer.Warnings), 1)

	list := func(options tuskpoint.ItemNamespacesOptions) string {
		return fmt.Sprint(must(client.ListItemNamespaces(within(t), &options))(t))
	}
	below := tuskpoint.ItemNamespacesOptions{Prefix: []string{root}}
	want(t, "the namespaces", list(below), fmt.Sprint([][]string{ada, bob}))
	below.Suffix = []string{"bob"}
	want(t, "namespaces of bob", list(below), fmt.Sprint([][]string{bob}))
	below.Suffix, below.MaxDepth = nil, 1
	want(t, "those that are cut", list(below), fmt.Sprint([][]string{{root}}))

	diet.Value = nil
	must(client.PutItems(within(t), []tuskpoint.ItemChange{diet}, nil))(t)
	want(t, "the deleted item", must(client.GetItems(within(t), keys[:1], nil))(t)[0], nil)
}

func TestMoreItemsThanARequestTakesAreReadAndFound(t *testing.T) {
	client, root := dial(t), []string{newThread()}
	var changes []tuskpoint.ItemChange
	var keys []tuskpoint.ItemKey
	for n := range 1100 {
		changes = append(changes, item(root, fmt.Sprint(n), map[string]any{"n": n}))
		keys = append(keys, changes[n].ItemKey)
	}
	for part := range slices.Chunk(changes, 1000) {
		must(client.PutItems(within(t), part, nil))(t)
	}
	for n, read := range must(client.GetItems(within(t), keys, nil))(t) {
		if read == nil || string(read.Value) != fmt.Sprintf(`{"n":%d}`, n) {
			t.Fatalf("item %d is %v", n, read)
		}
	}
	most := &tuskpoint.SearchItemsOptions{Limit: 1050}
	found := must(client.SearchItems(within(t), root, most))(t)
	want(t, "the number of items", len(found.Items), 1050)
}

func TestAnItemThatCannotBeUsedIsRefused(t *testing.T) {
	client := dial(t)
	change := item([]string{"a"}, "k", map[string]any{"n": func() {}})
	_, err := client.PutItems(within(t), []tuskpoint.ItemChange{change}, nil)
	wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
	change = item([]string{"a"}, "k", map[string]any{})
	change.TTL = -time.Second
	_, err = client.PutItems(within(t), []tuskpoint.ItemChange{change}, nil)
	wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
}

func TestAPreviewDeletesNothing(t *testing.T) {
	client, thread := dial(t), newThread()
	for n := range 3 {
		save(t, client, thread, map[string]any{"n": n})
	}
	rule := tuskpoint.RetentionRule{ThreadID: thread, KeepLast: 1, DeleteAfter: 24 * time.Hour}
	preview := must(client.PreviewRetention(within(t), []tuskpoint.RetentionRule{rule}))(t)
	want(t, "the checkpoints", preview.GetTotal().GetCheckpoints(), 2)
	want(t, "the thread", preview.GetEffects()[0].GetThreadId(), thread)
	want(t, "the time", preview.GetRules()[0].GetDeleteAfter().AsDuration(), 24*time.Hour)
	want(t, "the rest", must(client.GetThread(within(t), thread))(t).GetCheckpointCount(), 3)
	for _, wrong := range []tuskpoint.RetentionRule{
		{DeleteAfter: 1500 * time.Millisecond}, {KeepFor: -time.Second},
	} {
		_, err := client.PreviewRetention(within(t), []tuskpoint.RetentionRule{{}, wrong})
		wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
	}
}

func TestAReceiptIsSignedByTheServer(t *testing.T) {
	client, thread := dial(t), newThread()
	save(t, client, thread, map[string]any{"n": 1})
	receipt := must(client.Erase(within(t), []string{thread, newThread()}))(t)
	_, err := client.GetThread(within(t), thread)
	wantError(t, err, tuskpoint.ErrNotFound, "THREAD_NOT_FOUND")
	var document struct{ Threads []any }
	if err := json.Unmarshal(receipt.Content, &document); err != nil {
		t.Fatal(err)
	}
	want(t, "the number of threads", len(document.Threads), 2)
	signer := must(hex.DecodeString(receipt.Signer))(t)
	signature := must(hex.DecodeString(receipt.Signature))(t)
	signed := append([]byte("tuskpoint receipt v1\n"), receipt.Content...)
	want(t, "the signature holds", ed25519.Verify(signer, signed, signature), true)
	save(t, client, thread, map[string]any{"n": 2}) // the client's memory of the thread is gone too
}

func TestTheTrailHasTheCallsOfAServer(t *testing.T) {
	server := startServer(t, "--trail", "changes")
	client, thread := dialTo(t, server.Target), newThread()
	save(t, client, thread, map[string]any{"n": 1})
	// The server appends calls up to a second after they ended.
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		for _, entry := range collect(t, client.Trail(within(t))) {
			if entry.ThreadID == thread {
				want(t, "the method", entry.Method, "SaveCheckpoint")
				want(t, "the status", entry.Status, "OK")
				want(t, "the calls", entry.Calls, 1)
				want(t, "the order", entry.Last.Before(entry.First), false)
				return
			}
		}
	}
	t.Fatal("the trail never had the call")
}
