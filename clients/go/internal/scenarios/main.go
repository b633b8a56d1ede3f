// Command scenarios runs the interop scenarios with the Go client.
//
//	scenarios scenarios.json world.json
//
// The format of the input and of the output is in tests/interop/scenarios/README.md of the
// repository.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

const scenarioFormat = 1

// document is the file of scenarios.
type document struct {
	Format    int        `json:"format"`
	Scenarios []scenario `json:"scenarios"`
}

// scenario is a list of steps that run in order.
type scenario struct {
	Name   string           `json:"name"`
	Steps  []map[string]any `json:"steps"`
	Export []string         `json:"export"`
}

// world has the server, the credentials and the dead address of a run.
type world struct {
	Client     string            `json:"client"`
	Target     string            `json:"target"`
	CAFile     string            `json:"ca_file"`
	Tokens     map[string]string `json:"tokens"`
	DeadTarget string            `json:"dead_target"`
}

// outcome is the result of a scenario.
type outcome struct {
	Name    string         `json:"name"`
	OK      bool           `json:"ok"`
	Problem string         `json:"problem,omitempty"`
	Exports map[string]any `json:"exports,omitempty"`
}

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

// run runs all scenarios and returns the exit status.
func run(arguments []string, output io.Writer) int {
	scenarios, player, err := begin(arguments)
	if err != nil {
		fmt.Fprintln(os.Stderr, "scenarios:", err)
		return 2
	}
	defer player.close()
	lines := json.NewEncoder(output)
	lines.SetEscapeHTML(false)
	code := 0
	for _, one := range scenarios {
		played := player.play(one)
		if !played.OK {
			code = 1
		}
		if err := lines.Encode(played); err != nil {
			fmt.Fprintln(os.Stderr, "scenarios:", err)
			return 2
		}
	}
	return code
}

func begin(arguments []string) ([]scenario, *player, error) {
	if len(arguments) != 2 {
		return nil, nil, errors.New("usage: scenarios scenarios.json world.json")
	}
	var given document
	if err := read(arguments[0], &given); err != nil {
		return nil, nil, err
	}
	if given.Format != scenarioFormat {
		return nil, nil, fmt.Errorf("the format is %d, not %d", given.Format, scenarioFormat)
	}
	var where world
	if err := read(arguments[1], &where); err != nil {
		return nil, nil, err
	}
	return given.Scenarios, newPlayer(where), nil
}

func read(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := decode(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
