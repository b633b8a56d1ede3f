import { create } from "@bufbuild/protobuf";
import { CheckpointSchema } from "@contract/checkpoint_pb.js";
import { expect, test } from "vitest";
import { answerOfFields, textsOf } from "../../src/actions/interrupts/answer.ts";
import { formOf } from "../../src/actions/interrupts/form.ts";
import { chosenOption, oneClickOptions } from "../../src/actions/interrupts/one_click.ts";
import { isOwnAnswer, rememberAnswer } from "../../src/actions/interrupts/own_answers.ts";
import type { Json } from "../../src/parts/json/json.ts";

function optionsFor(question: Json) {
  return oneClickOptions(formOf(question));
}

test("a click answers a few options, and yes or no", () => {
  expect(optionsFor({ options: ["a", { label: "None", value: 0 }] })).toEqual([
    { label: "a", value: "a" },
    { label: "None", value: 0 },
  ]);
  expect(optionsFor({ type: "boolean" })?.map(({ value }) => value)).toEqual([true, false]);
  expect(optionsFor({ schema: { enum: ["x"] } })).toEqual([{ label: "x", value: "x" }]);
});

test("a click does not answer what takes more than a choice", () => {
  const many = Array.from({ length: 9 }, (_, index) => `option ${index}`);
  const fields = { type: "object", properties: { really: { type: "boolean" } } };
  for (const question of ["Which?", { options: many }, { schema: fields }, [1]] as Json[]) {
    expect(optionsFor(question)).toBeUndefined();
  }
});

test("an answer is the option with the same JSON", () => {
  const options = optionsFor({ options: ["0", { label: "None", value: 0 }, { label: "all" }] });
  expect(options && chosenOption(options, 0)?.label).toBe("None");
  expect(options && chosenOption(options, { label: "all" })?.label).toBe("all");
  expect(options && chosenOption(options, "other")).toBeUndefined();
});

test("an answer that is changed fills the form that made it", () => {
  const schema = {
    type: "object",
    properties: {
      name: { type: "string" },
      seats: { type: "integer", default: 1 },
      class: { enum: [1, 2] },
      more: {},
    },
  };
  const answers: [Json, Json][] = [
    [{ schema }, { name: "Ada", seats: 2, class: 2, more: [1] }],
    ["Which?", "two\nlines"],
    [{ type: "number" }, 1.5],
  ];
  for (const [question, answer] of answers) {
    const form = formOf(question);
    if (form.kind !== "fields") {
      throw new Error("not a form of fields");
    }
    expect(answerOfFields(form, textsOf(form, answer))).toEqual(answer);
  }
  const form = formOf({ schema });
  expect(form.kind === "fields" && textsOf(form, undefined)).toEqual(["", "1", "", ""]);
});

test("an answer is the page's own until something else is written to the checkpoint", () => {
  const ref = { threadId: "t", checkpointNs: "", checkpointId: "c" };
  const at = (seq: bigint) => create(CheckpointSchema, { ref, seq });
  expect(isOwnAnswer(at(5n), "a")).toBe(false);
  rememberAnswer(at(5n), "a", 6n);
  rememberAnswer(at(6n), "b", 7n);
  expect(isOwnAnswer(at(7n), "a")).toBe(true);
  expect(isOwnAnswer(at(7n), "b")).toBe(true);
  expect(isOwnAnswer(at(7n), "c")).toBe(false);
  expect(isOwnAnswer(at(8n), "a")).toBe(false);
  rememberAnswer(at(8n), "b", 9n);
  expect(isOwnAnswer(at(9n), "a")).toBe(false);
  expect(isOwnAnswer(at(9n), "b")).toBe(true);
  const other = create(CheckpointSchema, { ref: { ...ref, checkpointId: "d" }, seq: 9n });
  expect(isOwnAnswer(other, "b")).toBe(false);
});
