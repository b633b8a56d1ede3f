package tuskpoint

import (
	"context"
	"encoding/json"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// SearchMode is the method of a search.
type SearchMode = tuskpointv1.SearchMode

const (
	// SearchLexical: by words.
	SearchLexical = tuskpointv1.SearchMode_SEARCH_MODE_LEXICAL

	// SearchByVector: by vectors.
	SearchByVector = tuskpointv1.SearchMode_SEARCH_MODE_VECTOR

	// SearchMemWal: by MemWal.
	SearchMemWal = tuskpointv1.SearchMode_SEARCH_MODE_MEMWAL
)

// SearchMetric is the distance of two vectors.
type SearchMetric = tuskpointv1.SearchMetric

const (
	// Cosine: 1 minus the cosine of the angle, 0 to 2.
	Cosine = tuskpointv1.SearchMetric_SEARCH_METRIC_COSINE

	// L2: the length of the difference.
	L2 = tuskpointv1.SearchMetric_SEARCH_METRIC_L2
)

// SearchOptions are the settings of a search.
type SearchOptions struct {
	// ThreadID searches only this thread, if not empty.
	ThreadID string

	// AgentID searches only threads of this agent, if not empty.
	AgentID string

	// Filter finds only checkpoints whose metadata has all of these entries.
	Filter map[string]any

	// Limit is the largest number of results; 0 means 5.
	Limit uint32

	// Mode of a search by words. The default is the best mode that the server has.
	Mode SearchMode

	// Metric of a search by a vector. The default is [Cosine].
	Metric SearchMetric
}

// SearchResult is a checkpoint that a search returned: its identity, and the text that matched.
// [Client.Load] loads it.
type SearchResult struct {
	// ThreadID is the thread.
	ThreadID string

	// Namespace of the thread; empty is the root.
	Namespace string

	// CheckpointID is the checkpoint.
	CheckpointID string

	// Summary is one sentence about what happened; may be empty.
	Summary string

	// Content is the searched text of the state; empty if the checkpoint has only a summary.
	Content string

	// Metadata is the JSON object that was saved with the checkpoint.
	Metadata json.RawMessage

	// Distance from the query; smaller is nearer. Comparable only within one answer.
	Distance float64

	// Truncated: the checkpoint has more text than Content, which is the latest part.
	Truncated bool
}

// SearchResults has the results of a search, nearest first, and its method.
type SearchResults struct {
	// Results are the checkpoints, nearest first.
	Results []SearchResult

	// Mode is the method of the search.
	Mode SearchMode

	// Metric is the meaning of Distance: "cosine", "l2", or "bm25" by words.
	Metric string

	// Unindexed is the number of checkpoints that the search could not find yet.
	Unindexed uint64

	// Truncated: more matching checkpoints may exist that the search did not examine.
	Truncated bool

	// Warnings are conditions of this search, for example that it fell back to another mode.
	Warnings []Warning
}

// Search finds checkpoints by a description of what happened. Options may be nil.
//
// Errors: [ErrInvalidRequest] if the query is empty or an option breaks its limits,
// [ErrPreconditionFailed] if the server does not index.
func (c *Client) Search(
	ctx context.Context, query string, options *SearchOptions,
) (*SearchResults, error) {
	request, err := searching(options)
	if err != nil {
		return nil, err
	}
	request.Query = &tuskpointv1.SearchCheckpointsRequest_Text{Text: query}
	return c.searchWith(ctx, request)
}

// SearchVector finds the checkpoints whose vectors are nearest to a vector. Options may be nil. It
// returns the same errors as Search.
func (c *Client) SearchVector(
	ctx context.Context, vector []float32, options *SearchOptions,
) (*SearchResults, error) {
	request, err := searching(options)
	if err != nil {
		return nil, err
	}
	request.Query = &tuskpointv1.SearchCheckpointsRequest_Vector{
		Vector: &tuskpointv1.QueryVector{Values: vector},
	}
	return c.searchWith(ctx, request)
}

func searching(options *SearchOptions) (*tuskpointv1.SearchCheckpointsRequest, error) {
	given := valueOf(options)
	filter, err := encodeObject("filter", given.Filter)
	if err != nil {
		return nil, err
	}
	return &tuskpointv1.SearchCheckpointsRequest{
		ThreadId:   given.ThreadID,
		AgentId:    given.AgentID,
		FilterJson: filter,
		Limit:      given.Limit,
		Mode:       given.Mode,
		Metric:     given.Metric,
	}, nil
}

func (c *Client) searchWith(
	ctx context.Context, request *tuskpointv1.SearchCheckpointsRequest,
) (*SearchResults, error) {
	answer, err := c.search.SearchCheckpoints(ctx, request)
	if err != nil {
		return nil, err
	}
	results := &SearchResults{
		Results:   make([]SearchResult, len(answer.GetResults())),
		Mode:      answer.GetMode(),
		Metric:    answer.GetMetric(),
		Unindexed: answer.GetUnindexedCheckpoints(),
		Truncated: answer.GetTruncated(),
		Warnings:  warningsOf(answer.GetWarnings()),
	}
	for i, result := range answer.GetResults() {
		results.Results[i] = SearchResult{
			ThreadID:     result.GetRef().GetThreadId(),
			Namespace:    result.GetRef().GetCheckpointNs(),
			CheckpointID: result.GetRef().GetCheckpointId(),
			Summary:      result.GetSummary(),
			Content:      result.GetContent(),
			Metadata:     objectOf(result.GetMetadataJson()),
			Distance:     result.GetDistance(),
			Truncated:    result.GetTruncated(),
		}
	}
	return results, nil
}
