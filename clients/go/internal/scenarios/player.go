package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	rpccode "google.golang.org/genproto/googleapis/rpc/code"

	"tuskpoint.dev/go/tuskpoint"
)

const (
	writer = "writer"
	nobody = "nobody"
)

// player makes the calls of steps.
type player struct {
	world   world
	clients map[string]*tuskpoint.Client // by identity
}

func newPlayer(where world) *player {
	return &player{world: where, clients: map[string]*tuskpoint.Client{}}
}

func (p *player) close() {
	for client := range maps.Values(p.clients) {
		client.Close()
	}
}

// client returns the client of an identity.
func (p *player) client(identity string) (*tuskpoint.Client, error) {
	if client := p.clients[identity]; client != nil {
		return client, nil
	}
	options := []tuskpoint.Option{tuskpoint.WithCAFile(p.world.CAFile)}
	if identity != nobody {
		options = append(options, tuskpoint.WithToken(p.world.Tokens[identity]))
	}
	client, err := tuskpoint.Dial(p.world.Target, options...)
	if err == nil {
		p.clients[identity] = client
	}
	return client, err
}

// play runs the steps of a scenario up to the first step with an unexpected result.
func (p *player) play(played scenario) outcome {
	variables := map[string]any{
		"client":      p.world.Client,
		"target":      p.world.Target,
		"dead_target": p.world.DeadTarget,
		"unique":      p.world.Client + "-" + strings.ToLower(rand.Text()),
	}
	for number, given := range played.Steps {
		if err := p.step(given, variables); err != nil {
			name := given["rpc"]
			if name == nil {
				name = given["do"]
			}
			problem := fmt.Sprintf("step %d (%v): %v", number+1, name, err)
			return outcome{Name: played.Name, Problem: problem}
		}
	}
	passed := outcome{Name: played.Name, OK: true}
	for _, name := range played.Export {
		if passed.Exports == nil {
			passed.Exports = map[string]any{}
		}
		passed.Exports[name] = variables[name]
	}
	return passed
}

// step runs one step and binds its variables. It returns the problem, if any.
func (p *player) step(given map[string]any, variables map[string]any) error {
	filled := map[string]any{}
	for key, value := range given {
		if key == "bind" {
			continue
		}
		one, err := fill(value, variables)
		if err != nil {
			return err
		}
		filled[key] = one
	}
	identity := writer
	if as, has := filled["as"].(string); has {
		identity = as
	}
	result, err := p.call(filled, identity)
	if err != nil {
		return unlike(filled["expect_error"], err)
	}
	if expected, has := filled["expect_error"]; has {
		return fmt.Errorf("it should have failed with %s", shown(expected))
	}
	if expected, has := filled["expect"]; has {
		if err := check(expected, result, "result"); err != nil {
			return err
		}
	}
	return bind(given["bind"], result, variables)
}

func (p *player) call(step map[string]any, identity string) (any, error) {
	client, err := p.client(identity)
	if err != nil {
		return nil, err
	}
	if name, isCall := step["rpc"].(string); isCall {
		return callContract(client, name, step)
	}
	name, _ := step["do"].(string)
	action := actions[name]
	if action == nil {
		return nil, fmt.Errorf("there is no action %q", name)
	}
	result, err := action(p.world, client, step["with"])
	if err != nil {
		return nil, err
	}
	return plain(result)
}

func bind(given, result any, variables map[string]any) error {
	names, _ := given.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		path, isText := names[name].(string)
		if !isText {
			return fmt.Errorf("the path of %s is not a text", name)
		}
		value, err := at(result, path)
		if err != nil {
			return err
		}
		variables[name] = value
	}
	return nil
}

// unlike returns how an error differs from the expected error; nil if it does not differ.
func unlike(expected any, err error) error {
	var failure *tuskpoint.Error
	if !errors.As(err, &failure) {
		return err
	}
	fields := []any{}
	for _, one := range failure.Violations {
		fields = append(fields, one.Field)
	}
	metadata := map[string]any{}
	for key, value := range failure.Metadata {
		metadata[key] = value
	}
	found := map[string]any{
		"status":   rpccode.Code(failure.Status).String(),
		"reason":   failure.Reason,
		"metadata": metadata,
		"fields":   fields,
	}
	if expected == nil {
		return fmt.Errorf("it failed with %s: %s", shown(found), failure.Message)
	}
	if mismatch := check(expected, found, "error"); mismatch != nil {
		return fmt.Errorf("%w; the error is %s: %s", mismatch, shown(found), failure.Message)
	}
	return nil
}
