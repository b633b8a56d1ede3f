package tuskpoint_test

import (
	"testing"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

const (
	oneTask     = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	anotherTask = "6ba7b811-9dad-11d1-80b4-00c04fd430c8"
)

// ask saves writes of a task, as a graph does.
func ask(t *testing.T, client *tuskpoint.Client, ref *tuskpointv1.CheckpointRef, task, channel, text string) {
	t.Helper()
	must(client.Checkpoints().SaveWrites(within(t), &tuskpointv1.SaveWritesRequest{
		Ref: ref,
		Writes: []*tuskpointv1.PendingWrite{{
			TaskId: task, TaskPath: "~path", Channel: channel, Content: &tuskpointv1.PendingWrite_Value{
				Value: &tuskpointv1.Value{Type: "json", Data: []byte(text)},
			},
		}},
	}))(t)
}

// answers returns the writes on __resume__ at a checkpoint, by task.
func answers(t *testing.T, client *tuskpoint.Client, thread, namespace string) map[string]string {
	t.Helper()
	checkpoint := must(client.Load(within(t), thread, "",
		&tuskpoint.LoadOptions{Namespace: namespace}))(t)
	found := map[string]string{}
	for _, write := range checkpoint.Writes {
		if write.Channel == "__resume__" {
			want(t, "the type", write.Type, "json")
			found[write.TaskID] = string(write.Data)
		}
	}
	return found
}

func TestAnInterruptIsAnswered(t *testing.T) {
	client, thread := dial(t), newThread()
	id := save(t, client, thread, map[string]any{"draft": "v1"})
	_, err := client.Answer(within(t), thread, "yes", nil)
	wantError(t, err, tuskpoint.ErrPreconditionFailed, "")
	want(t, "what waits", len(must(client.Interrupts(within(t), thread, nil))(t)), 0)

	ref := &tuskpointv1.CheckpointRef{ThreadId: thread, CheckpointId: id}
	ask(t, client, ref, oneTask, "__interrupt__", `[{"value":"Publish?","id":"0123"}]`)
	waiting := must(client.Interrupts(within(t), thread, nil))(t)
	want(t, "what waits", len(waiting), 1)
	want(t, "the ID", waiting[0].ID, "0123")
	want(t, "the question", string(waiting[0].Value), `"Publish?"`)
	want(t, "the task", waiting[0].TaskID, oneTask)
	want(t, "the checkpoint", waiting[0].CheckpointID, id)

	_, err = client.Answer(within(t), thread, nil, nil)
	wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
	_, err = client.Answer(within(t), thread, "yes", &tuskpoint.AnswerOptions{InterruptID: "other"})
	wantError(t, err, tuskpoint.ErrPreconditionFailed, "")
	for _, value := range []any{"not yet", map[string]any{"publish": true, "note": "Grüße"}} {
		want(t, "the answered", must(client.Answer(within(t), thread, value, nil))(t), id)
	}
	given := answers(t, client, thread, "")
	want(t, "the answer", given["00000000-0000-0000-0000-000000000000"], `{"note":"Grüße","publish":true}`)

	// Once the task has continued, it no longer waits.
	ask(t, client, ref, oneTask, "draft", `"v2"`)
	_, err = client.Answer(within(t), thread, "yes", nil)
	wantError(t, err, tuskpoint.ErrPreconditionFailed, "")
}

func TestOneOfSeveralInterruptsIsAnswered(t *testing.T) {
	client, thread := dial(t), newThread()
	id := save(t, client, thread, map[string]any{"draft": "v1"})
	ref := &tuskpointv1.CheckpointRef{ThreadId: thread, CheckpointId: id}
	ask(t, client, ref, oneTask, "__interrupt__", `[{"value":"Publish?","id":"p"}]`)
	ask(t, client, ref, anotherTask, "__interrupt__", `[{"value":"Translate?","id":"t"}]`)

	_, err := client.Answer(within(t), thread, "yes", nil)
	wantError(t, err, tuskpoint.ErrPreconditionFailed, "")
	must(client.Answer(within(t), thread, "yes", &tuskpoint.AnswerOptions{InterruptID: "t"}))(t)
	given := answers(t, client, thread, "")
	want(t, "the number of answers", len(given), 1)
	want(t, "the answer", given[anotherTask], `["yes"]`)
	_, err = client.Answer(within(t), thread, "no", &tuskpoint.AnswerOptions{InterruptID: "t"})
	wantError(t, err, tuskpoint.ErrPreconditionFailed, "")
}

func TestAnAnswerGoesToTheSubgraphThatAsks(t *testing.T) {
	client, thread := dial(t), newThread()
	inner := "review:" + anotherTask
	must(client.Save(within(t), thread, map[string]any{"part": 1},
		&tuskpoint.SaveOptions{Namespace: inner}))(t)
	id := save(t, client, thread, map[string]any{"draft": "v1"})
	ref := &tuskpointv1.CheckpointRef{ThreadId: thread, CheckpointId: id}
	ask(t, client, ref, oneTask, "__interrupt__", `[{"value":"Publish?","id":"p"}]`)
	ask(t, client, ref, anotherTask, "__interrupt__", `[{"value":"Translate?","id":"t"}]`)
	below := must(client.Load(within(t), thread, "", &tuskpoint.LoadOptions{Namespace: inner}))(t)
	ask(t, client, &tuskpointv1.CheckpointRef{
		ThreadId: thread, CheckpointNs: inner, CheckpointId: below.ID,
	}, "inner-task", "__interrupt__", `[{"value":"Translate?","id":"t"}]`)

	answered := must(client.Answer(within(t), thread, "yes", &tuskpoint.AnswerOptions{InterruptID: "t"}))(t)
	want(t, "the answered", answered, id)
	want(t, "answers at the root", len(answers(t, client, thread, "")), 0)
	want(t, "the answer below", answers(t, client, thread, inner)["inner-task"], `["yes"]`)
}

func TestTheTaskThatAsksIsAnsweredAndNotTheOneThatCalledIt(t *testing.T) {
	client, thread := dial(t), newThread()
	id := save(t, client, thread, map[string]any{"draft": "v1"})
	ref := &tuskpointv1.CheckpointRef{ThreadId: thread, CheckpointId: id}
	asks := func(task, path, text string) {
		must(client.Checkpoints().SaveWrites(within(t), &tuskpointv1.SaveWritesRequest{
			Ref: ref,
			Writes: []*tuskpointv1.PendingWrite{{
				TaskId: task, TaskPath: path, Channel: "__interrupt__",
				Content: &tuskpointv1.PendingWrite_Value{
					Value: &tuskpointv1.Value{Type: "json", Data: []byte(text)},
				},
			}},
		}))(t)
	}
	asks(oneTask, "~__pregel_pull, flow", `[{"value":"Publish?","id":"p"}]`)
	asks(anotherTask, "~__pregel_push, (~__pregel_pull, flow), 2", `[{"value":"Publish?","id":"p"}]`)
	asks("a-third", "~__pregel_push, (~__pregel_pull, flow), 3", `[{"value":"Translate?","id":"t"}]`)

	must(client.Answer(within(t), thread, "yes", &tuskpoint.AnswerOptions{InterruptID: "p"}))(t)
	given := answers(t, client, thread, "")
	want(t, "the number of answers", len(given), 1)
	want(t, "the answer", given[anotherTask], `["yes"]`)
}

func TestInterruptsOfEveryShapeAreListed(t *testing.T) {
	client := dial(t)
	for text, expected := range map[string][2]string{
		`[{"value":null,"id":"p"}]`:             {"p", `null`},
		`[{"id":"p"}]`:                          {"p", `null`},
		`[{"value":"Publish?","id":7}]`:         {"", `"Publish?"`},
		`[{"Value":"Publish?","ID":"p"}]`:       {"", `{"Value":"Publish?","ID":"p"}`},
		`"Publish?"`:                            {"", `"Publish?"`},
		`[{"value":{"note":"Grüße"},"when":0}]`: {"", `{"note":"Grüße"}`},
	} {
		thread := newThread()
		id := save(t, client, thread, map[string]any{"draft": "v1"})
		ref := &tuskpointv1.CheckpointRef{ThreadId: thread, CheckpointId: id}
		ask(t, client, ref, oneTask, "__interrupt__", text)
		waiting := must(client.Interrupts(within(t), thread, nil))(t)
		want(t, "what waits", len(waiting), 1)
		want(t, "the ID of "+text, waiting[0].ID, expected[0])
		want(t, "the value of "+text, string(waiting[0].Value), expected[1])
	}
}
