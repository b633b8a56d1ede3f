// Package tuskpoint is the Go client of TuskPoint, the checkpoint server for AI agents.
//
// A [Client] saves checkpoints and loads them exactly, lists, replays and watches threads, answers
// interrupts, compares, copies and verifies threads, captures several threads at once, hands
// checkpoints off to other agents and adopts them, and searches checkpoints:
//
//	client, err := tuskpoint.Dial("127.0.0.1:7390")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	saved, err := client.Save(ctx, "thread-1", map[string]any{"plan": []string{"read", "write"}},
//		&tuskpoint.SaveOptions{Summary: "Planned.", AgentID: "planner"})
//
//	checkpoint, err := client.Load(ctx, "thread-1", saved.CheckpointID, nil)
//	var state struct{ Plan []string }
//	err = checkpoint.Decode(&state)
//
// Each key of a state is a channel whose value is JSON, which agents in every language read. Every
// method takes a context. A call whose context has no deadline gets a default deadline. A call is
// retried where that is safe; streams resume after a break.
//
// Saves and loads share a stream, in batches that grow with the number of goroutines that call. A
// call whose context ends returns without its answer; a save that was sent may still take effect.
//
// With [ViewStep] a read returns what happened at each checkpoint, a [Step], in place of the state.
// [Client.ListThreads] yields what each thread waits for or why it failed.
//
// Errors are of type [*Error]. Distinguish them with [errors.Is] with the package's sentinels, such
// as [ErrNotFound] and [ErrConflict], or by Error.Reason; never by their text.
//
// The messages and stubs of the contract are in [tuskpoint.dev/go/tuskpoint/tuskpointv1].
// [Client.Checkpoints], [Client.Threads] and so on return its typed clients, for features without a
// method here. Typed clients have the same credentials, errors, deadlines and retries, except that
// a stream has no deadline and is not reopened.
package tuskpoint
