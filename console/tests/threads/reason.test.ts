import { create } from "@bufbuild/protobuf";
import { ThreadSchema, ThreadState } from "@contract/thread_pb.js";
import { expect, test } from "vitest";
import { reasonOf } from "../../src/threads/reason.ts";

test("a thread that waits shows its question", () => {
  const thread = create(ThreadSchema, {
    state: ThreadState.INTERRUPTED,
    question: { node: "approve", text: "Publish it?" },
    summary: "step 3",
  });
  expect(reasonOf(thread)).toEqual({
    kind: "question",
    node: "approve",
    type: "",
    text: "Publish it?",
    whole: "approve: Publish it?",
  });
});

test("a thread that failed shows its node, the type of the error and the last line", () => {
  const message = "request failed\n  because: 503\n\n";
  const thread = create(ThreadSchema, {
    state: ThreadState.FAILED,
    failure: { node: "fetch", type: "HTTPError", message },
    summary: "step 3",
  });
  expect(reasonOf(thread)).toEqual({
    kind: "failure",
    node: "fetch",
    type: "HTTPError",
    text: "because: 503",
    whole: `fetch: HTTPError: ${message}`,
  });
});

test("an idle thread shows its summary, whatever it was before", () => {
  const thread = create(ThreadSchema, { state: ThreadState.IDLE, summary: "published" });
  expect(reasonOf(thread)).toMatchObject({ kind: "summary", text: "published" });
});

test("a question or an error that the server cannot read has no text", () => {
  for (const state of [ThreadState.INTERRUPTED, ThreadState.FAILED]) {
    const thread = create(ThreadSchema, { state, summary: "step 3" });
    expect(reasonOf(thread)).toMatchObject({ node: "", type: "", text: "", whole: "" });
  }
});
