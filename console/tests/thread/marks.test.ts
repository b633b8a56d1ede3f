import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { CheckpointSchema } from "@contract/checkpoint_pb.js";
import { expect, test } from "vitest";
import { marksOf } from "../../src/thread/marks.ts";

const ALONE = { isContinued: false, isHandedOff: false, forks: 0 };

function texts(
  fields: MessageInitShape<typeof CheckpointSchema>,
  around: Partial<typeof ALONE> = {},
): string[] {
  return marksOf(create(CheckpointSchema, fields), { ...ALONE, ...around }).map(
    ({ text, kind }) => `${kind} ${text}`,
  );
}

test("a question waits until it is answered, or until a later step follows", () => {
  const open = { step: { questions: [{ answered: true }, { answered: false }] } };
  const answered = { step: { questions: [{ answered: true }] } };
  expect(texts(open)).toEqual(["warn waits for a person"]);
  expect(texts(open, { isContinued: true })).toEqual([" asked a person"]);
  expect(texts(answered)).toEqual([" asked a person"]);
});

test("a failure that the thread left behind is quiet", () => {
  const failed = { step: { failures: [{ node: "pay\u202e", type: "ValueError" }, {}] } };
  expect(texts(failed)).toEqual(["bad failed in pay\\u202e: ValueError"]);
  expect(texts(failed, { isContinued: true })).toEqual([
    " failed in pay\\u202e: ValueError, then continued",
  ]);
  expect(texts({ step: { failures: [{}] } })).toEqual(["bad failed"]);
});

test("a mark names the task: the row has the node of the step before the task", () => {
  const step = { questions: [{ node: "approve" }], failures: [{ node: "pay" }, {}] };
  const shown = marksOf(create(CheckpointSchema, { step }), ALONE).map((mark) => mark.shown);
  expect(shown).toEqual(["approve asks", "pay failed"]);
});

test("origins and descendants are marked", () => {
  const lineage = { forkedFrom: "a:1", rolledBackFrom: "a:2", adoptedFrom: "a:3" };
  expect(texts({ label: "ok", lineage }, { forks: 2, isHandedOff: true })).toEqual([
    "good label ok",
    " forked here",
    "warn rolled back",
    "good adopted",
    " 2 forks",
    "good handed off",
  ]);
  expect(texts({})).toEqual([]);
});
