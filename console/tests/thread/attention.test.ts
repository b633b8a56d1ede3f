import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { CheckpointSchema } from "@contract/checkpoint_pb.js";
import type { StepSchema } from "@contract/step_pb.js";
import { expect, test } from "vitest";
import { attentionOf, continuedIn, isAnswered } from "../../src/thread/attention.ts";
import { tokensOf, wholeTimeMs } from "../../src/thread/figures.ts";
import { keyOf, ThreadLog } from "../../src/thread/log.ts";

interface Saved {
  id: string;
  ns?: string;
  parent?: string;
  callers?: Record<string, string>;
  step?: MessageInitShape<typeof StepSchema>;
  seconds?: number;
}

function entries(...all: Saved[]) {
  const log = new ThreadLog();
  for (const { id, ns = "", parent = "", callers = {}, step = {}, seconds = 0 } of all) {
    log.put(
      create(CheckpointSchema, {
        ref: { threadId: "t", checkpointNs: ns, checkpointId: id },
        parentCheckpointId: parent,
        metadataJson: new TextEncoder().encode(JSON.stringify({ parents: callers })),
        createTime: { seconds: BigInt(seconds) },
        step,
      }),
    );
  }
  return log.newestFirst();
}

const failure = { node: "read", type: "ValueError", message: "bad" };

test("the open questions of the head need a person", () => {
  const questions = [
    { node: "a", text: "done", answered: true },
    { node: "b", text: "which?" },
    { node: "c", text: "when?" },
  ];
  const attention = attentionOf(entries({ id: "1" }, { id: "2", step: { questions } }));
  expect(attention).toMatchObject({ kind: "question", where: "b", text: "which?", others: 1 });
  expect(attentionOf(entries({ id: "1", step: { questions } }, { id: "2" }))).toBeUndefined();
});

test("a run can continue once all questions of the head are answered", () => {
  const answered = { text: "which?", answered: true };
  const nextNodes = ["pay"];
  const of = (step: Saved["step"]) => isAnswered(entries({ id: "1", ...(step ? { step } : {}) }));
  expect(of({ questions: [answered], nextNodes })).toBe(true);
  expect(of({ questions: [answered, { text: "when?" }], nextNodes })).toBe(false);
  expect(of({ questions: [answered] })).toBe(false);
  expect(of({ nextNodes })).toBe(false);
  expect(isAnswered([])).toBe(false);
});

test("a failure in a subgraph leads to the innermost checkpoint at which a task failed", () => {
  const inner = { ...failure, node: "load" };
  const found = attentionOf(
    entries(
      { id: "1", step: { failures: [failure] } },
      {
        id: "2",
        ns: "read:x",
        callers: { "": "1" },
        step: { failures: [{ ...failure, node: "in" }] },
      },
      {
        id: "3",
        ns: "read:x|in:y",
        callers: { "": "1", "read:x": "2" },
        step: { failures: [inner] },
      },
      { id: "4", ns: "read:z", callers: { "": "1" } },
    ),
  );
  expect(found).toMatchObject({ kind: "failure", where: "read › in › load", type: "ValueError" });
  expect(found?.place.checkpointId).toBe("3");
});

test.each([
  ["of another run", { callers: { "": "0" }, step: { failures: [failure] } }],
  ["with another error", { callers: { "": "1" }, step: { failures: [{ ...failure, type: "E" }] } }],
  ["with damaged parents", { callers: null as never, step: { failures: [failure] } }],
])("a failure in a subgraph %s is not the failure of the head", (_, other) => {
  const found = attentionOf(
    entries({ id: "1", step: { failures: [failure] } }, { id: "2", ns: "read:x", ...other }),
  );
  expect(found).toMatchObject({ where: "read", place: { checkpointId: "1" } });
});

test("a failure that a subgraph overcame is not the failure of the head", () => {
  const callers = { "": "1" };
  const found = attentionOf(
    entries(
      { id: "1", step: { failures: [failure] } },
      { id: "2", ns: "read:x", callers, step: { failures: [failure] } },
      { id: "3", ns: "read:x", callers, parent: "2" },
    ),
  );
  expect(found?.place.checkpointId).toBe("1");
});

test("a subgraph does not continue the step that ran it", () => {
  const continued = continuedIn(
    entries(
      { id: "1" },
      { id: "2", ns: "a:x", callers: { "": "1" } },
      { id: "3", ns: "a:x", parent: "2" },
    ),
  );
  expect([...continued]).toEqual([keyOf("a:x", "2")]);
});

test("figures of a thread count its root graph's tokens, and the time of all graphs", () => {
  const tokens = { inputTokens: 10n, outputTokens: 5n };
  const all = entries(
    { id: "1", seconds: 7 },
    { id: "2", seconds: 100, step: { tokens } },
    { id: "3", ns: "a:x", seconds: 112, step: { tokens } },
    { id: "4", seconds: 108, step: { tokens } },
  );
  expect(tokensOf(all)).toEqual({ inputTokens: 20n, outputTokens: 10n });
  expect(wholeTimeMs(all)).toBe(105_000);
  expect(tokensOf(all.slice(3))).toBeUndefined();
  expect(wholeTimeMs(all.slice(3))).toBeUndefined();
});
