package tuskpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// The channels and the task that LangGraph uses to interrupt and resume.
const (
	interruptChannel = "__interrupt__"
	resumeChannel    = "__resume__"
	runTaskID        = "00000000-0000-0000-0000-000000000000"
)

// controlChannels record what happened to a task. A write to any other channel means that the task
// ended.
var controlChannels = []string{
	interruptChannel, resumeChannel, "__error__", "__error_source_node__",
}

const maxNamedInterrupts = 5 // in an error message

// Interrupt is a question that a thread waits for.
type Interrupt struct {
	// CheckpointID is the checkpoint that waits.
	CheckpointID string

	// TaskID is the task that asks.
	TaskID string

	// ID of the interrupt; empty if its framework gave it no ID.
	ID string

	// Value is the question as JSON; see [ViewJSON].
	Value json.RawMessage
}

// InterruptOptions are the settings of [Client.Interrupts].
type InterruptOptions struct {
	// CheckpointID is the checkpoint. Empty: the latest checkpoint.
	CheckpointID string

	// Namespace of the thread; empty is the root, which also has the interrupts that wait in
	// subgraphs.
	Namespace string
}

// Interrupts returns the interrupts that a checkpoint of a thread waits for. An answered interrupt
// is included until its graph has continued. Options may be nil.
//
// Errors: [ErrNotFound] if the checkpoint does not exist.
func (c *Client) Interrupts(
	ctx context.Context, threadID string, options *InterruptOptions,
) ([]Interrupt, error) {
	given := valueOf(options)
	ref := refOf(threadID, given.Namespace, given.CheckpointID)
	checkpoint, err := c.getCheckpoint(ctx, ref, ViewJSON, SourceAny)
	if err != nil {
		return nil, err
	}
	return interruptsOf(checkpoint), nil
}

// AnswerOptions are the settings of [Client.Answer].
type AnswerOptions struct {
	// CheckpointID is the waiting checkpoint; it prevents an answer to a later question by mistake.
	// Empty: the latest checkpoint, from which graphs continue.
	CheckpointID string

	// Namespace of the thread. Answers to interrupts in subgraphs go to the root, which is the
	// default.
	Namespace string

	// InterruptID is the interrupt. Empty: the only interrupt that waits.
	InterruptID string
}

// Answer answers an interrupt, and returns the ID of the checkpoint that waits for it. The value is
// any value that JSON can express, except null. Options may be nil.
//
// The answer is a pending write. A LangGraph agent uses it when its graph is invoked without input.
// Until then a later answer replaces the earlier one, unless the checkpoint waits for several
// interrupts.
//
// Errors: [ErrPreconditionFailed] if the checkpoint waits for no interrupt, not for the named
// interrupt, or for several interrupts and the options name none; [ErrInvalidRequest] if the value
// is null or not JSON; [ErrNotFound] if the checkpoint does not exist.
func (c *Client) Answer(
	ctx context.Context, threadID string, value any, options *AnswerOptions,
) (string, error) {
	given := valueOf(options)
	text, err := encodeJSON("value", value)
	if err != nil {
		return "", err
	}
	if string(text) == "null" {
		return "", invalidField("value", "null cannot be the answer of an interrupt")
	}
	ref := refOf(threadID, given.Namespace, given.CheckpointID)
	checkpoint, err := c.getCheckpoint(ctx, ref, ViewJSON, SourceAny)
	if err != nil {
		return "", err
	}
	waiting := interruptsOf(checkpoint)
	chosen, err := choose(waiting, checkpoint.GetRef(), given.InterruptID)
	if err != nil {
		return "", err
	}
	answer := answerTo(checkpoint.GetRef(), runTaskID, "", text)
	if len(waiting) > 1 {
		if answer, err = c.answerOfTask(ctx, checkpoint, chosen, text); err != nil {
			return "", err
		}
	}
	_, err = c.saveWrites(ctx, answer)
	return checkpoint.GetRef().GetCheckpointId(), err
}

// interruptsOf returns the interrupts that a checkpoint, read in its JSON view, waits for.
//
// An interrupt is a pending write of a task on the channel __interrupt__. Its answer is a pending
// write on __resume__: of no task if only one interrupt waits, else of the task that asks. A task
// waits until it has written something else, or until another checkpoint follows.
func interruptsOf(checkpoint *tuskpointv1.Checkpoint) []Interrupt {
	ended := map[string]bool{runTaskID: true}
	for _, write := range checkpoint.GetWrites() {
		if !slices.Contains(controlChannels, write.GetChannel()) {
			ended[write.GetTaskId()] = true
		}
	}
	// A task that interrupts and the task that called it, whose path is shorter, both have the
	// interrupt; the called task asks.
	writes := slices.SortedStableFunc(slices.Values(checkpoint.GetWrites()),
		func(a, b *tuskpointv1.PendingWrite) int { return len(b.GetTaskPath()) - len(a.GetTaskPath()) })
	var waiting []Interrupt
	listed := map[string]bool{}
	for _, write := range writes {
		if write.GetChannel() != interruptChannel || ended[write.GetTaskId()] {
			continue
		}
		for _, item := range itemsOf(write.GetValue().GetData()) {
			interrupt := interruptOf(checkpoint.GetRef().GetCheckpointId(), write.GetTaskId(), item)
			if interrupt.ID == "" || !listed[interrupt.ID] {
				waiting = append(waiting, interrupt)
				listed[interrupt.ID] = true
			}
		}
	}
	return waiting
}

// choose returns the interrupt to answer.
func choose(
	waiting []Interrupt, place *tuskpointv1.CheckpointRef, interruptID string,
) (Interrupt, error) {
	if len(waiting) == 0 {
		return Interrupt{}, refuseAnswer(place, "waits for no answer: ListThreads with the state "+
			"THREAD_STATE_INTERRUPTED lists the threads that do")
	}
	if interruptID == "" && len(waiting) == 1 {
		return waiting[0], nil
	}
	named := make([]string, 0, maxNamedInterrupts)
	for i, interrupt := range waiting {
		if interruptID != "" && interrupt.ID == interruptID {
			return interrupt, nil
		}
		if i < maxNamedInterrupts {
			named = append(named, strconv.Quote(interrupt.ID))
		}
	}
	all := strings.Join(named, ", ")
	if interruptID != "" {
		return Interrupt{}, refuseAnswer(place,
			fmt.Sprintf("does not wait for an answer to %q, but to %s", interruptID, all))
	}
	return Interrupt{}, refuseAnswer(place, fmt.Sprintf("waits for %d answers: choose one with InterruptID: %s",
		len(waiting), all))
}

// answerOfTask returns the request that answers one of several interrupts.
//
// The answer goes to the task that asks. If that task is in a subgraph, the task that waits here
// runs the subgraph, and the asking task is in the subgraph's own namespace.
func (c *Client) answerOfTask(
	ctx context.Context, found *tuskpointv1.Checkpoint, chosen Interrupt, text []byte,
) (*tuskpointv1.SaveWritesRequest, error) {
	thread, err := c.GetThread(ctx, found.GetRef().GetThreadId())
	if err != nil {
		return nil, err
	}
	holder, asking := found, chosen
	for _, head := range innerHeads(thread, found.GetRef().GetCheckpointNs(), chosen.TaskID) {
		ref := refOf(thread.GetThreadId(), head.GetCheckpointNs(), head.GetCheckpointId())
		inner, err := c.getCheckpoint(ctx, ref, ViewJSON, SourceAny)
		if isReason(err, "CHECKPOINT_NOT_FOUND") {
			continue
		}
		if err != nil {
			return nil, err
		}
		same := func(one Interrupt) bool { return one.ID == chosen.ID }
		if here := interruptsOf(inner); slices.ContainsFunc(here, same) {
			holder, asking = inner, here[slices.IndexFunc(here, same)]
			break
		}
	}
	path := ""
	for _, write := range holder.GetWrites() {
		switch {
		case write.GetTaskId() != asking.TaskID:
		case write.GetChannel() == resumeChannel:
			return nil, refuseAnswer(found.GetRef(), fmt.Sprintf("has an answer to %q already "+
				"and waits for others: invoke the graph", chosen.ID))
		case write.GetChannel() == interruptChannel:
			path = write.GetTaskPath()
		}
	}
	answers := slices.Concat([]byte("["), text, []byte("]"))
	return answerTo(holder.GetRef(), asking.TaskID, path, answers), nil
}

// innerHeads returns the heads of the namespaces that a task may have asked in, innermost first.
//
// A subgraph's namespace is its parent's namespace, a "|", and the name of the node that runs the
// subgraph. A ":" and the ID of that node's task follow unless the subgraph has memory across
// calls.
func innerHeads(thread *tuskpointv1.Thread, namespace, taskID string) []*tuskpointv1.NamespaceHead {
	var found []*tuskpointv1.NamespaceHead
	for _, head := range thread.GetHeads() {
		rest, inside := head.GetCheckpointNs(), true
		if namespace != "" {
			rest, inside = strings.CutPrefix(rest, namespace+"|")
		}
		node, _, _ := strings.Cut(rest, "|")
		if inside && rest != "" && (strings.HasSuffix(node, ":"+taskID) || !strings.Contains(node, ":")) {
			found = append(found, head)
		}
	}
	depth := func(head *tuskpointv1.NamespaceHead) int { return strings.Count(head.GetCheckpointNs(), "|") }
	slices.SortStableFunc(found, func(a, b *tuskpointv1.NamespaceHead) int { return depth(b) - depth(a) })
	return found
}

func answerTo(
	place *tuskpointv1.CheckpointRef, taskID, taskPath string, text []byte,
) *tuskpointv1.SaveWritesRequest {
	value := &tuskpointv1.Value{Type: jsonType, Data: text}
	return &tuskpointv1.SaveWritesRequest{
		Ref: place,
		Writes: []*tuskpointv1.PendingWrite{{
			TaskId: taskID, TaskPath: taskPath, Channel: resumeChannel,
			Content: &tuskpointv1.PendingWrite_Value{Value: value},
		}},
	}
}

// itemsOf returns the interrupts of one write, which LangGraph stores as a list.
func itemsOf(text []byte) []json.RawMessage {
	var items []json.RawMessage
	if err := json.Unmarshal(text, &items); err != nil {
		return []json.RawMessage{text}
	}
	return items
}

func interruptOf(checkpointID, taskID string, text json.RawMessage) Interrupt {
	interrupt := Interrupt{CheckpointID: checkpointID, TaskID: taskID, Value: text}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return interrupt // of another framework: the whole value is the question
	}
	id, hasID := members["id"]
	value, hasValue := members["value"]
	if !hasID && !hasValue {
		return interrupt
	}
	interrupt.Value = json.RawMessage("null")
	if hasValue {
		interrupt.Value = value
	}
	if err := json.Unmarshal(id, &interrupt.ID); err != nil {
		interrupt.ID = ""
	}
	return interrupt
}

func refuseAnswer(place *tuskpointv1.CheckpointRef, problem string) *Error {
	where := ""
	if place.GetCheckpointNs() != "" {
		where = fmt.Sprintf(" in namespace %q", place.GetCheckpointNs())
	}
	return &Error{
		Status: codes.FailedPrecondition,
		Message: fmt.Sprintf("checkpoint %s of thread %q%s %s", place.GetCheckpointId(),
			place.GetThreadId(), where, problem),
		Metadata: map[string]string{
			"thread_id":     place.GetThreadId(),
			"checkpoint_ns": place.GetCheckpointNs(),
			"checkpoint_id": place.GetCheckpointId(),
		},
		kind: preconditionFailed,
	}
}
