import { create } from "@bufbuild/protobuf";
import { ThreadSchema } from "@contract/thread_pb.js";
import { expect, test } from "vitest";
import { headOf } from "../../src/actions/checkpoint_names.ts";
import { inUnits, threadsIn } from "../../src/actions/dialog_inputs.ts";

test("the head of a namespace is what the thread says", () => {
  const heads = [{ checkpointNs: "sub", checkpointId: "s" }];
  const thread = create(ThreadSchema, { headCheckpointId: "h", heads });
  expect(headOf(thread, "")).toBe("h");
  expect(headOf(thread, "sub")).toBe("s");
  expect(headOf(thread, "other")).toBeUndefined();
  expect(headOf(create(ThreadSchema, {}), "")).toBeUndefined();
  expect(headOf(undefined, "")).toBeUndefined();
});

test("threads are named one a line, each once", () => {
  expect(threadsIn("a\n\n b \na\n")).toEqual(["a", " b "]);
});

test("a retention has the largest unit that it is a whole number of", () => {
  expect(inUnits(7 * 86_400)).toEqual({ amount: 7, unit: 86_400 });
  expect(inUnits(5400)).toEqual({ amount: 90, unit: 60 });
  expect(inUnits(61)).toEqual({ amount: 61, unit: 1 });
});
