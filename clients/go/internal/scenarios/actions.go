package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

const connectTime = 2 * time.Second

// fields are the fields of an object in a result.
type fields = map[string]any

// action is a call of the client's own layer, with the arguments of a step.
type action func(where world, client *tuskpoint.Client, with any) (any, error)

var actions = map[string]action{
	"save":    doing(save),
	"load":    doing(load),
	"list":    doing(list),
	"replay":  doing(replay),
	"watch":   doing(watch),
	"answer":  doing(answer),
	"handoff": doing(handOff),
	"adopt":   doing(adopt),
	"search":  doing(search),
	"delete":  doing(remove),
	"connect": connect,
}

// doing returns an action that decodes its arguments into a W, and refuses unknown arguments.
func doing[W any](do func(context.Context, *tuskpoint.Client, W) (any, error)) action {
	return func(_ world, client *tuskpoint.Client, with any) (any, error) {
		var given W
		if err := readStrictly(with, &given); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), actionTime)
		defer cancel()
		return do(ctx, client, given)
	}
}

func readStrictly(with, into any) error {
	text, err := encode(with)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

type withSave struct {
	ThreadID   string         `json:"thread_id"`
	State      map[string]any `json:"state"`
	ParentID   string         `json:"parent_id"`
	Metadata   map[string]any `json:"metadata"`
	Summary    string         `json:"summary"`
	AgentID    string         `json:"agent_id"`
	Durability string         `json:"durability"`
}

func save(ctx context.Context, client *tuskpoint.Client, with withSave) (any, error) {
	saved, err := client.Save(ctx, with.ThreadID, with.State, &tuskpoint.SaveOptions{
		ParentID:   with.ParentID,
		Metadata:   with.Metadata,
		Summary:    with.Summary,
		AgentID:    with.AgentID,
		Durability: tuskpoint.Durability(tuskpointv1.Durability_value["DURABILITY_"+with.Durability]),
	})
	if err != nil {
		return nil, err
	}
	return fields{
		"checkpoint_id": saved.CheckpointID,
		"durability":    strings.TrimPrefix(saved.Durability.String(), "DURABILITY_"),
	}, nil
}

type withCheckpoint struct {
	ThreadID     string `json:"thread_id"`
	CheckpointID string `json:"checkpoint_id"`
}

func load(ctx context.Context, client *tuskpoint.Client, with withCheckpoint) (any, error) {
	loaded, err := client.Load(ctx, with.ThreadID, with.CheckpointID, nil)
	if err != nil {
		return nil, err
	}
	state, err := loaded.State()
	return fields{
		"thread_id":     loaded.ThreadID,
		"checkpoint_id": loaded.ID,
		"parent_id":     loaded.ParentID,
		"state":         state,
		"metadata":      loaded.Metadata,
		"summary":       loaded.Summary,
	}, err
}

type withList struct {
	ThreadID string `json:"thread_id"`
	Limit    uint32 `json:"limit"`
}

func list(ctx context.Context, client *tuskpoint.Client, with withList) (any, error) {
	found := []fields{}
	options := &tuskpoint.ListOptions{Limit: with.Limit}
	for one, err := range client.List(ctx, with.ThreadID, options) {
		if err != nil {
			return nil, err
		}
		found = append(found, fields{
			"checkpoint_id": one.ID, "parent_id": one.ParentID, "summary": one.Summary,
		})
	}
	return found, nil
}

type withThread struct {
	ThreadID string `json:"thread_id"`
}

func replay(ctx context.Context, client *tuskpoint.Client, with withThread) (any, error) {
	found := []fields{}
	for one, err := range client.Replay(ctx, with.ThreadID, nil) {
		if err != nil {
			return nil, err
		}
		state, err := one.State()
		if err != nil {
			return nil, err
		}
		found = append(found, fields{"checkpoint_id": one.ID, "state": state})
	}
	return found, nil
}

type withWatch struct {
	ThreadID string `json:"thread_id"`
	Take     int    `json:"take"`
	Cursor   string `json:"cursor"`
}

func watch(ctx context.Context, client *tuskpoint.Client, with withWatch) (any, error) {
	cursor, err := hex.DecodeString(with.Cursor)
	if err != nil {
		return nil, err
	}
	events := []fields{}
	for event, err := range client.Watch(ctx, with.ThreadID, &tuskpoint.WatchOptions{Cursor: cursor}) {
		if err != nil {
			return nil, err
		}
		about := ""
		if event.Checkpoint != nil {
			about = event.Checkpoint.ID
		}
		kind := strings.TrimPrefix(event.Kind.String(), "EVENT_KIND_")
		events = append(events, fields{"kind": kind, "checkpoint_id": about})
		if len(events) == with.Take {
			return fields{"events": events, "cursor": hex.EncodeToString(event.Cursor)}, nil
		}
	}
	return nil, errors.New("the watch ended")
}

type withAnswer struct {
	ThreadID     string `json:"thread_id"`
	Value        any    `json:"value"`
	CheckpointID string `json:"checkpoint_id"`
}

func answer(ctx context.Context, client *tuskpoint.Client, with withAnswer) (any, error) {
	answered, err := client.Answer(ctx, with.ThreadID, with.Value,
		&tuskpoint.AnswerOptions{CheckpointID: with.CheckpointID})
	return fields{"checkpoint_id": answered}, err
}

type withHandOff struct {
	ThreadID     string `json:"thread_id"`
	CheckpointID string `json:"checkpoint_id"`
	ToAgent      string `json:"to_agent"`
}

func handOff(ctx context.Context, client *tuskpoint.Client, with withHandOff) (any, error) {
	return client.HandOff(ctx, with.ThreadID,
		&tuskpoint.HandOffOptions{CheckpointID: with.CheckpointID, ToAgent: with.ToAgent})
}

type withAdopt struct {
	Descriptor  tuskpoint.Descriptor `json:"descriptor"`
	NewThreadID string               `json:"new_thread_id"`
}

func adopt(ctx context.Context, client *tuskpoint.Client, with withAdopt) (any, error) {
	stages := []string{}
	adoption, err := client.Adopt(ctx, &with.Descriptor, with.NewThreadID, &tuskpoint.AdoptOptions{
		OnProgress: func(progress tuskpoint.AdoptProgress) {
			stages = append(stages, strings.TrimPrefix(progress.Stage.String(), "ADOPT_STAGE_"))
		},
	})
	if err != nil {
		return nil, err
	}
	return fields{
		"new_thread_id": adoption.NewThreadID,
		"checkpoint_id": adoption.CheckpointID,
		"verified":      adoption.Verified,
		"stages":        stages,
	}, nil
}

type withSearch struct {
	Query    string         `json:"query"`
	ThreadID string         `json:"thread_id"`
	Limit    uint32         `json:"limit"`
	Filter   map[string]any `json:"filter"`
}

func search(ctx context.Context, client *tuskpoint.Client, with withSearch) (any, error) {
	results, err := client.Search(ctx, with.Query, &tuskpoint.SearchOptions{
		ThreadID: with.ThreadID, Limit: with.Limit, Filter: with.Filter,
	})
	if err != nil {
		return nil, err
	}
	found := []fields{}
	for _, one := range results.Results {
		found = append(found, fields{
			"thread_id": one.ThreadID, "checkpoint_id": one.CheckpointID, "summary": one.Summary,
		})
	}
	return found, nil
}

func remove(ctx context.Context, client *tuskpoint.Client, with withThread) (any, error) {
	deleted, err := client.Delete(ctx, with.ThreadID, nil)
	return fields{"deleted": deleted}, err
}

// connect opens a client, requests the server's info and closes the client.
func connect(where world, _ *tuskpoint.Client, with any) (any, error) {
	given := struct {
		Target string `json:"target"`
		CA     bool   `json:"ca"`
	}{CA: true}
	if err := readStrictly(with, &given); err != nil {
		return nil, err
	}
	options := []tuskpoint.Option{
		tuskpoint.WithTLS(true), tuskpoint.WithToken(where.Tokens[writer]),
		tuskpoint.WithTimeout(connectTime),
	}
	if given.CA {
		options = append(options, tuskpoint.WithCAFile(where.CAFile))
	}
	client, err := tuskpoint.Dial(given.Target, options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	info, err := client.Info(context.Background())
	return fields{"version": info.GetVersion()}, err
}
