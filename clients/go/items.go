package tuskpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// ItemKey is the name of an item.
type ItemKey struct {
	// Namespace is a path of labels.
	Namespace []string

	// Key is the key in the namespace.
	Key string
}

// ItemChange is an item to put or to delete.
type ItemChange struct {
	ItemKey

	// Value is a JSON object; nil deletes the item.
	Value map[string]any

	// TTL is the time after which the item expires, counted from the last put, or from the last
	// read with RefreshTTL; 0: never.
	TTL time.Duration

	// IndexPaths are the parts of the value that a search by meaning sees: paths such as "text",
	// "author.name" and "notes[*].text"; "$" is the whole value. Empty: the whole value.
	IndexPaths []string

	// Unindexed hides the item from searches by meaning.
	Unindexed bool
}

// Item is a stored item.
type Item struct {
	ItemKey

	// Value is the JSON object.
	Value json.RawMessage

	// Created is the time of the first put.
	Created time.Time

	// Updated is the time of the last put.
	Updated time.Time

	// Expires is the time at which the item expires; zero means never.
	Expires time.Time
}

// PutItems puts and deletes items, all or none: at most 1,000. The last of several changes to one
// item counts. Options may be nil. It returns warnings, for example about a growing backlog of
// uncertified data.
//
// Errors: [ErrInvalidRequest] if a value cannot be written as JSON or a change breaks its limits,
// [ErrResourceExhausted] if a value is too large or the backlog of uncertified data is full.
func (c *Client) PutItems(
	ctx context.Context, changes []ItemChange, options *ChangeOptions,
) ([]Warning, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	request := &tuskpointv1.PutItemsRequest{Durability: valueOf(options).Durability}
	for _, change := range changes {
		message, err := change.message()
		if err != nil {
			return nil, err
		}
		request.Changes = append(request.Changes, message)
	}
	answer, err := c.store.PutItems(ctx, request)
	return warningsOf(answer.GetWarnings()), err
}

func (change ItemChange) message() (*tuskpointv1.ItemChange, error) {
	message := &tuskpointv1.ItemChange{Namespace: change.Namespace, Key: change.Key}
	if change.Value == nil {
		return message, nil
	}
	if change.TTL < 0 {
		return nil, invalidField("TTL", "it must be a time above 0, or 0 for never")
	}
	value, err := encodeJSON("value", change.Value)
	if err != nil {
		return nil, err
	}
	message.ValueJson = value
	message.IndexPaths, message.Unindexed = change.IndexPaths, change.Unindexed
	if change.TTL > 0 {
		message.Ttl = durationpb.New(change.TTL)
	}
	return message, nil
}

// GetItemsOptions are the settings of [Client.GetItems].
type GetItemsOptions struct {
	// RefreshTTL restarts the time to live of the items.
	RefreshTTL bool
}

// GetItems returns an item for each key, nil for an item that does not exist or has expired.
// Options may be nil.
func (c *Client) GetItems(
	ctx context.Context, keys []ItemKey, options *GetItemsOptions,
) ([]*Item, error) {
	read := make(map[string]*Item, len(keys))
	for rest := keys; len(rest) > 0; {
		request := &tuskpointv1.GetItemsRequest{RefreshTtl: valueOf(options).RefreshTTL}
		for _, key := range rest[:min(len(rest), batch)] {
			request.Keys = append(request.Keys,
				&tuskpointv1.ItemKey{Namespace: key.Namespace, Key: key.Key})
		}
		answer, err := c.store.GetItems(ctx, request)
		if err != nil {
			return nil, err
		}
		for _, message := range answer.GetItems() {
			item := itemOf(message)
			read[item.identity()] = item
		}
		// A full answer leaves out the last keys.
		rest = rest[min(len(request.GetKeys()), max(1, int(answer.GetAnsweredKeys()))):]
	}
	items := make([]*Item, len(keys))
	for i, key := range keys {
		items[i] = read[key.identity()]
	}
	return items, nil
}

// SearchItemsOptions are the settings of [Client.SearchItems].
type SearchItemsOptions struct {
	// Query is a text to compare items with, by meaning. Empty: no comparison, the most recent puts
	// first.
	Query string

	// Filter finds only items whose value has all of these entries. A value such as
	// map[string]any{"$gte": 3} compares with an operator: $eq, $ne, $gt, $gte, $lt, $lte.
	Filter map[string]any

	// Limit is the largest number of items to return; 0 means 10.
	Limit uint32

	// Offset is the number of items to skip.
	Offset uint32

	// RefreshTTL restarts the time to live of the items.
	RefreshTTL bool
}

// FoundItem is an item in the results of a search.
type FoundItem struct {
	Item

	// Score is the cosine of the angle to the query, at most 1; nil if the item was not compared.
	Score *float64
}

// FoundItems is the result of a search for items.
type FoundItems struct {
	// Items are the items, nearest first.
	Items []FoundItem

	// Warnings are conditions of this search, for example that the query was not compared.
	Warnings []Warning
}

// SearchItems finds the items whose namespace starts with these labels: nearest first, or without a
// query the most recent puts first. Options may be nil.
//
// Errors: [ErrInvalidRequest] if an option breaks its limits, or an operator is unknown.
func (c *Client) SearchItems(
	ctx context.Context, prefix []string, options *SearchItemsOptions,
) (*FoundItems, error) {
	given := valueOf(options)
	filter, err := encodeObject("filter", given.Filter)
	if err != nil {
		return nil, err
	}
	begin := &tuskpointv1.SearchItemsRequest{
		NamespacePrefix: prefix, FilterJson: filter, Query: given.Query, RefreshTtl: given.RefreshTTL,
	}
	limit := given.Limit
	if limit == 0 {
		limit = 10
	}
	results := &FoundItems{}
	for {
		count := uint32(len(results.Items))
		request := proto.CloneOf(begin)
		request.Offset, request.Limit = given.Offset+count, min(limit-count, batch)
		answer, err := c.store.SearchItems(ctx, request)
		if err != nil {
			return nil, err
		}
		for _, item := range answer.GetItems() {
			results.Items = append(results.Items, FoundItem{*itemOf(item.GetItem()), item.Score})
		}
		for _, warning := range warningsOf(answer.GetWarnings()) {
			if !slices.Contains(results.Warnings, warning) {
				results.Warnings = append(results.Warnings, warning)
			}
		}
		size := uint32(len(answer.GetItems()))
		ended := size == 0 || (!answer.GetCut() && size < request.GetLimit())
		if ended || uint32(len(results.Items)) >= limit {
			return results, nil
		}
	}
}

// ItemNamespacesOptions are the settings of [Client.ListItemNamespaces].
type ItemNamespacesOptions struct {
	// Prefix lists only namespaces that start with these labels; "*" matches any label.
	Prefix []string

	// Suffix lists only namespaces that end with these labels; "*" matches any label.
	Suffix []string

	// MaxDepth cuts namespaces to this number of labels, and lists equal namespaces once; 0 does
	// not cut.
	MaxDepth uint32

	// Limit is the largest number of namespaces to return; 0 means 100.
	Limit uint32

	// Offset is the number of namespaces to skip.
	Offset uint32
}

// ListItemNamespaces returns the namespaces that have items, in sorted order. Options may be nil.
//
// Errors: [ErrInvalidRequest] if an option breaks its limits.
func (c *Client) ListItemNamespaces(
	ctx context.Context, options *ItemNamespacesOptions,
) ([][]string, error) {
	given := valueOf(options)
	begin := &tuskpointv1.ListItemNamespacesRequest{MaxDepth: given.MaxDepth}
	if len(given.Prefix) > 0 {
		begin.Patterns = append(begin.Patterns, &tuskpointv1.NamespacePattern{Labels: given.Prefix})
	}
	if len(given.Suffix) > 0 {
		begin.Patterns = append(begin.Patterns,
			&tuskpointv1.NamespacePattern{Labels: given.Suffix, AtEnd: true})
	}
	limit := given.Limit
	if limit == 0 {
		limit = 100
	}
	var namespaces [][]string
	for {
		count := uint32(len(namespaces))
		request := proto.CloneOf(begin)
		request.Offset, request.Limit = given.Offset+count, min(limit-count, batch)
		answer, err := c.store.ListItemNamespaces(ctx, request)
		if err != nil {
			return nil, err
		}
		for _, namespace := range answer.GetNamespaces() {
			namespaces = append(namespaces, namespace.GetLabels())
		}
		size := uint32(len(answer.GetNamespaces()))
		if size < request.GetLimit() || uint32(len(namespaces)) >= limit {
			return namespaces, nil
		}
	}
}

// identity returns a text that is unique to the key.
func (key ItemKey) identity() string { return fmt.Sprintf("%q %q", key.Namespace, key.Key) }

func itemOf(message *tuskpointv1.Item) *Item {
	return &Item{
		ItemKey: ItemKey{Namespace: message.GetNamespace(), Key: message.GetKey()},
		Value:   objectOf(message.GetValueJson()),
		Created: timeOf(message.GetCreateTime()),
		Updated: timeOf(message.GetUpdateTime()),
		Expires: timeOf(message.GetExpireTime()),
	}
}
