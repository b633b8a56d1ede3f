import { expect, test } from "vitest";
import {
  answerOfFields,
  answerOfReviews,
  type Decided,
  FormProblem,
} from "../../src/actions/interrupts/answer.ts";
import { type Form, formOf, headline } from "../../src/actions/interrupts/form.ts";
import type { Json } from "../../src/parts/json/json_tree.tsx";

function fields(question: Json, schema?: Json): Form & { kind: "fields" } {
  const form = formOf(question, schema);
  if (form.kind !== "fields") {
    throw new Error(`the form is ${form.kind}`);
  }
  return form;
}

function reviews(question: Json): Form & { kind: "reviews" } {
  const form = formOf(question);
  if (form.kind !== "reviews") {
    throw new Error(`the form is ${form.kind}`);
  }
  return form;
}

function decide(decision: number, given: Partial<Decided> = {}): Decided {
  return { decision, text: "", args: "{}", ...given };
}

test("a text asks for a text", () => {
  const form = fields("Which city?");
  expect(form.fields.map((one) => one.kind)).toEqual(["long"]);
  expect(answerOfFields(form, ["Lisbon"])).toBe("Lisbon");
  expect(headline({ question: "Continue?" })).toBe("Continue?");
  expect(fields({ question: "Continue?", price: 1 }).fields[0]?.kind).toBe("long");
});

test("an answer must be there", () => {
  expect(() => answerOfFields(fields("Which city?"), [" "])).toThrow(FormProblem);
});

test("a question of yes or no has both", () => {
  const form = fields({ question: "Continue?", type: "boolean" });
  expect(answerOfFields(form, ["true"])).toBe(true);
  expect(answerOfFields(form, ["false"])).toBe(false);
});

test("options are radio buttons, and their values the answers", () => {
  const form = fields({
    question: "Which?",
    options: ["night", 2, { label: "None", value: { cancel: true } }],
  });
  expect(form.fields[0]?.options.map((one) => one.label)).toEqual(["night", "2", "None"]);
  expect([0, 1, 2].map((one) => answerOfFields(form, [String(one)]))).toEqual([
    "night",
    2,
    { cancel: true },
  ]);
  expect(fields({ message: "Which?", choices: ["a"] }).fields[0]?.kind).toBe("choice");
});

test("a schema gives fields, and the answer has those that are filled", () => {
  const schema = {
    type: "object",
    properties: {
      name: { type: "string", title: "Name", description: "Whose?" },
      seats: { type: "integer", default: 2 },
      price: { anyOf: [{ type: "number" }, { type: "null" }] },
      window: { type: "boolean" },
      class: { $$ref: "#/$defs/Class" },
      extra: { type: "object" },
    },
    required: ["name", "seats"],
    $$defs: { Class: { enum: ["first", "second"] } },
  };
  for (const form of [
    fields({ message: "Fill in", schema }),
    fields("Fill in", schema),
    fields(schema),
  ]) {
    expect(form.fields.map((one) => one.kind)).toEqual([
      "text",
      "integer",
      "number",
      "boolean",
      "choice",
      "json",
    ]);
    expect(form.fields.map((one) => one.initial)).toEqual(["", "2", "", "", "", ""]);
    const answer = answerOfFields(form, ["Ada", "3", "1.5", "", "1", '{"a":1}']);
    expect(answer).toStrictEqual({
      name: "Ada",
      seats: 3,
      price: 1.5,
      class: "second",
      extra: { a: 1 },
    });
  }
});

test("a text that does not fit its field is refused by name", () => {
  const form = fields({ schema: { type: "object", properties: { n: { type: "integer" } } } });
  expect(() => answerOfFields(form, ["1.5"])).toThrow("“n” must be an integer.");
  expect(() => answerOfFields(form, ["x"])).toThrow("“n” must be an integer.");
});

test("the request of a tool is decided as LangChain's HumanInterrupt says", () => {
  const request = {
    action_request: { action: "send", args: { to: "a" } },
    config: { allow_accept: true, allow_edit: true, allow_respond: true, allow_ignore: false },
    description: "Please review",
  };
  const form = reviews([request]);
  expect(form.reviews[0]?.decisions.map((one) => one.type)).toEqual(["accept", "edit", "response"]);
  expect(answerOfReviews(form, [decide(0)])).toEqual([{ type: "accept", args: null }]);
  expect(answerOfReviews(form, [decide(1, { args: '{"to":"b"}' })])).toEqual([
    { type: "edit", args: { action: "send", args: { to: "b" } } },
  ]);
  expect(answerOfReviews(form, [decide(2, { text: "later" })])).toEqual([
    { type: "response", args: "later" },
  ]);
  expect(answerOfReviews(reviews(request), [decide(0)])).toEqual({ type: "accept", args: null });
});

test("calls of tools are decided as LangChain's middleware says", () => {
  const form = reviews({
    action_requests: [
      { name: "send", args: { to: "a" }, description: "send it?" },
      { name: "drop", args: {} },
    ],
    review_configs: [
      { action_name: "send", allowed_decisions: ["approve", "edit", "reject"] },
      { action_name: "drop", allowed_decisions: ["approve", "reject", "constructor"] },
    ],
  });
  expect(form.reviews.map((one) => one.decisions.map(({ type }) => type))).toEqual([
    ["approve", "edit", "reject"],
    ["approve", "reject"],
  ]);
  const decided = [decide(1, { args: '{"to":"b"}' }), decide(1, { text: "no" })];
  expect(answerOfReviews(form, decided)).toEqual({
    decisions: [
      { type: "edit", edited_action: { name: "send", args: { to: "b" } } },
      { type: "reject", message: "no" },
    ],
  });
  expect(() => answerOfReviews(form, [decide(0)])).toThrow("Decide about “drop”.");
  expect(() => answerOfReviews(form, [decide(1, { args: "[]" }), decide(0)])).toThrow(FormProblem);
});

test("anything else is answered with JSON", () => {
  const odd: Json[] = [
    null,
    3,
    [],
    { weird: 1 },
    { options: [] },
    { action_requests: [{}], review_configs: 7 },
    { question: "which?", options: [{ $type: "builtins.set", $value: [1] }] },
    { properties: {} },
    { question: "which?", options: Array.from({ length: 101 }, (_, index) => index) },
  ];
  expect(odd.map((one) => formOf(one).kind)).toEqual(odd.map(() => "json"));
});

test("objects of Python are read as their fields, and escaped keys as themselves", () => {
  const form = fields({ $type: "app.Ask", question: "which?", options: [{ $$ref: 1 }] });
  expect(answerOfFields(form, ["0"])).toEqual({ $ref: 1 });
});
