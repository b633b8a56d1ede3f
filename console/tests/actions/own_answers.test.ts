import { create } from "@bufbuild/protobuf";
import { CheckpointSchema } from "@contract/checkpoint_pb.js";
import { expect, test } from "vitest";
import { isOwnAnswer, rememberAnswer } from "../../src/actions/interrupts/own_answers.ts";

function place(threadId: string, seq: bigint) {
  return create(CheckpointSchema, { ref: { threadId, checkpointId: "1" }, seq });
}

test("answers stay the page's own until something else is written", () => {
  rememberAnswer(place("a", 5n), "one", 6n);
  rememberAnswer(place("a", 6n), "two", 7n);
  expect(isOwnAnswer(place("a", 7n), "one")).toBe(true);
  expect(isOwnAnswer(place("a", 7n), "two")).toBe(true);
  expect(isOwnAnswer(place("a", 8n), "two")).toBe(false);
});

test("an answer that is given before the last one was read back keeps the last one", () => {
  rememberAnswer(place("b", 5n), "one", 6n);
  rememberAnswer(place("b", 5n), "two", 7n);
  expect(isOwnAnswer(place("b", 7n), "one")).toBe(true);
});

test("a change between two answers ends the first", () => {
  rememberAnswer(place("c", 5n), "one", 6n);
  rememberAnswer(place("c", 5n), "two", 8n);
  expect(isOwnAnswer(place("c", 8n), "one")).toBe(false);
  expect(isOwnAnswer(place("c", 8n), "two")).toBe(true);
});
