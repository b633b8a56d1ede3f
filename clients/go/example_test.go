package tuskpoint_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"tuskpoint.dev/go/tuskpoint"
)

func Example() {
	ctx := context.Background()
	client, err := tuskpoint.Dial("127.0.0.1:7390")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	saved, err := client.Save(ctx, "thread-1", map[string]any{"plan": []string{"read", "write"}},
		&tuskpoint.SaveOptions{Summary: "Planned.", AgentID: "planner"})
	if err != nil {
		log.Fatal(err)
	}

	checkpoint, err := client.Load(ctx, "thread-1", saved.CheckpointID, nil)
	if err != nil {
		log.Fatal(err)
	}
	var state struct{ Plan []string }
	if err := checkpoint.Decode(&state); err != nil {
		log.Fatal(err)
	}
	fmt.Println(state.Plan, checkpoint.Summary)
}

func ExampleClient_Watch() {
	client, err := tuskpoint.Dial("")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for event, err := range client.Watch(context.Background(), "thread-1", nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Sequence, event.Kind)
	}
}

func ExampleError() {
	client, err := tuskpoint.Dial("")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	_, err = client.Save(context.Background(), "thread-1", map[string]any{"step": 2},
		&tuskpoint.SaveOptions{ExpectedHead: "1f0c0a54-0000-6000-8000-000000000000"})
	var failure *tuskpoint.Error
	switch {
	case errors.Is(err, tuskpoint.ErrConflict) && errors.As(err, &failure):
		fmt.Println("another agent was faster; the head is", failure.Metadata["head"])
	case err != nil:
		log.Fatal(err)
	}
}

func ExampleDoOnce() {
	client, err := tuskpoint.Dial("")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	send := func(ctx context.Context, attempt tuskpoint.Attempt) (string, error) {
		// Send attempt.IdempotencyKey with the request to the provider.
		return "message-1", nil
	}
	messageID, err := tuskpoint.DoOnce(context.Background(), client, "thread-1", "mail:order-42", nil, send)
	switch {
	case errors.Is(err, tuskpoint.ErrEffectUnknown):
		fmt.Println("find out whether the mail was sent:", err)
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println("sent as", messageID)
	}
}
