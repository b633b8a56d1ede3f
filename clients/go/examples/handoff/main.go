// Command handoff runs an agent that plans while a watcher follows, and hands its work off to a
// second agent, which continues.
//
//	tuskpoint-server &
//	go run ./examples/handoff
//
// The environment names the server and the credentials: see the README.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"

	"tuskpoint.dev/go/tuskpoint"
)

// state is the state that both agents work on.
type state struct {
	Plan  []string `json:"plan"`
	Done  []string `json:"done"`
	Words int      `json:"words"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, "", os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs both agents and the watcher.
func run(ctx context.Context, target string, output io.Writer) error {
	client, err := tuskpoint.Dial(target)
	if err != nil {
		return err
	}
	defer client.Close()
	thread := "briefing-" + rand.Text()

	steps, err := plan(ctx, client, thread)
	if err != nil {
		return err
	}
	if err := watch(ctx, client, thread, steps, output); err != nil {
		return err
	}
	descriptor, err := client.HandOff(ctx, thread, &tuskpoint.HandOffOptions{ToAgent: "writer"})
	if err != nil {
		return err
	}
	// The second agent needs only the descriptor and the same blob store.
	message, err := json.Marshal(descriptor)
	if err != nil {
		return err
	}
	return write(ctx, client, message, thread+"-writer", output)
}

// plan is the first agent: it saves after each step, and returns the number of steps.
func plan(ctx context.Context, client *tuskpoint.Client, thread string) (int, error) {
	summaries := []string{"Found two sources.", "Planned the briefing."}
	now := map[string]any{"plan": []string{"read"}, "done": []string{}, "words": 0}
	for _, summary := range summaries {
		_, err := client.Save(ctx, thread, now,
			&tuskpoint.SaveOptions{Summary: summary, AgentID: "planner"})
		if err != nil {
			return 0, err
		}
		now["plan"], now["done"] = []string{"write"}, []string{"read"}
	}
	return len(summaries), nil
}

// watch prints the changes of a thread as they happen, up to a number of saves.
func watch(
	ctx context.Context, client *tuskpoint.Client, thread string, saves int, output io.Writer,
) error {
	kinds := []tuskpoint.EventKind{tuskpoint.CheckpointSaved}
	for event, err := range client.Watch(ctx, thread, &tuskpoint.WatchOptions{Kinds: kinds}) {
		if err != nil {
			return err
		}
		fmt.Fprintf(output, "planner: %s\n", event.Checkpoint.Summary)
		if saves--; saves == 0 {
			break
		}
	}
	return nil
}

// write is the second agent: it adopts the hand-off, and continues.
func write(
	ctx context.Context, client *tuskpoint.Client, message []byte, thread string, output io.Writer,
) error {
	descriptor, err := tuskpoint.ParseDescriptor(message)
	if err != nil {
		return err
	}
	adoption, err := client.Adopt(ctx, descriptor, thread, &tuskpoint.AdoptOptions{
		OnProgress: func(progress tuskpoint.AdoptProgress) {
			fmt.Fprintf(output, "writer: %s, %d bytes\n", progress.Stage, progress.FetchedBytes)
		},
	})
	if err != nil {
		return err
	}
	checkpoint, err := client.Load(ctx, adoption.NewThreadID, adoption.CheckpointID, nil)
	if err != nil {
		return err
	}
	var now state
	if err := checkpoint.Decode(&now); err != nil {
		return err
	}
	fmt.Fprintf(output, "writer: continues with %v after %v\n", now.Plan, now.Done)
	_, err = client.Save(ctx, thread, map[string]any{
		"plan": []string{}, "done": append(now.Done, now.Plan...), "words": 180,
	}, &tuskpoint.SaveOptions{Summary: "Wrote the briefing.", AgentID: "writer"})
	if err != nil {
		return err
	}
	fmt.Fprintln(output, "writer: wrote the briefing")
	return nil
}
