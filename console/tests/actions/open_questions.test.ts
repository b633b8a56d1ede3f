import { create } from "@bufbuild/protobuf";
import { CheckpointSchema } from "@contract/checkpoint_pb.js";
import { ThreadSchema } from "@contract/thread_pb.js";
import { expect, test } from "vitest";
import {
  answerRequest,
  innerHeads,
  NO_TASK,
  openQuestions,
  storedAnswer,
} from "../../src/actions/interrupts/open_questions.ts";

type Write = [taskId: string, channel: string, value: unknown, taskPath?: string];

function checkpoint(writes: Write[]) {
  return create(CheckpointSchema, {
    ref: { threadId: "t", checkpointNs: "", checkpointId: "c1" },
    writes: writes.map(([taskId, channel, value, taskPath = ""]) => ({
      taskId,
      taskPath,
      channel,
      content: {
        case: "value" as const,
        value: { type: "json", data: new TextEncoder().encode(JSON.stringify(value)) },
      },
    })),
  });
}

function asks(id: string, value: unknown) {
  return [{ $type: "langgraph.types.Interrupt", value, id, response_schema: null }];
}

test("a question is open until its task has written something else", () => {
  const place = checkpoint([
    ["a", "__interrupt__", asks("1", "continue?")],
    ["b", "__interrupt__", asks("2", "and now?")],
    ["b", "plan", ["x"]],
  ]);
  expect(openQuestions(place)).toEqual([
    { id: "1", value: "continue?", schema: undefined, taskId: "a", taskPath: "" },
  ]);
});

test("of a task and its caller, the called task asks", () => {
  const place = checkpoint([
    ["caller", "__interrupt__", asks("1", "?"), "~pull, node"],
    ["called", "__interrupt__", asks("1", "?"), "~pull, node, call"],
  ]);
  expect(openQuestions(place).map((one) => one.taskId)).toEqual(["called"]);
});

test("a question without an ID is one too", () => {
  const place = checkpoint([["a", "__interrupt__", "plain"]]);
  expect(openQuestions(place).map(({ id, value }) => [id, value])).toEqual([["", "plain"]]);
});

test("the only question is answered for no task, one of several for its task in a list", () => {
  const place = checkpoint([["a", "__interrupt__", asks("1", "?"), "path"]]);
  const [question] = openQuestions(place);
  if (!question) {
    throw new Error("no question");
  }
  const text = (several: boolean) => {
    const [write] = answerRequest(place, question, several, '{"n":1.0}').writes ?? [];
    const content = write?.content;
    const data = content?.case === "value" ? content.value.data : undefined;
    return [write?.taskId, write?.taskPath, new TextDecoder().decode(data)];
  };
  expect(text(false)).toEqual([NO_TASK, "", '{"n":1.0}']);
  expect(text(true)).toEqual(["a", "path", '[{"n":1.0}]']);
});

test("a stored answer is found where the answer of the question is", () => {
  const place = checkpoint([
    ["a", "__interrupt__", asks("1", "?")],
    ["a", "__resume__", ["first", "second"]],
    [NO_TASK, "__resume__", "to all"],
  ]);
  const [question] = openQuestions(place);
  if (!question) {
    throw new Error("no question");
  }
  expect(storedAnswer(place, question, true, false)?.value).toBe("second");
  expect(storedAnswer(place, question, false, false)?.value).toBe("to all");
  // The server says that a newer question waits.
  expect(storedAnswer(place, question, false, true)).toBeUndefined();
  const open = checkpoint([["a", "__interrupt__", asks("1", "?")]]);
  expect(storedAnswer(open, question, true, false)).toBeUndefined();
});

test("a task may ask in the namespaces of its subgraphs, innermost first", () => {
  const heads = ["", "sub:a", "sub:b", "sub:a|deep:c", "own", "sub:a|own"].map((checkpointNs) => ({
    checkpointNs,
    checkpointId: "x",
  }));
  const thread = create(ThreadSchema, { heads });
  const inside = (namespace: string, task: string) =>
    innerHeads(thread, namespace, task).map((one) => one.checkpointNs);
  expect(inside("", "a")).toEqual(["sub:a|deep:c", "sub:a|own", "sub:a", "own"]);
  expect(inside("sub:a", "c")).toEqual(["sub:a|deep:c", "sub:a|own"]);
});
