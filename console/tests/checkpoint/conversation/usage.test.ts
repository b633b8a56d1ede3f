import { expect, test } from "vitest";
import { messagesOf } from "../../../src/checkpoint/conversation/messages.ts";
import { modelOf, sumsOf, usageOf } from "../../../src/checkpoint/conversation/usage.ts";
import type { Json } from "../../../src/parts/json/json.ts";

type Fields = { [key: string]: Json };

test.each<[string, Fields, [string, ...(number | undefined)[]]]>([
  [
    "LangChain in Python",
    {
      usage_metadata: { input_tokens: 12, output_tokens: 3, total_tokens: 15 },
      response_metadata: { model_name: "m", token_usage: { prompt_tokens: 99 } },
    },
    ["m", 12, 3, 15],
  ],
  [
    "LangChain with the provider's own numbers",
    { response_metadata: { model: "m", usage: { input_tokens: 2, output_tokens: 1 } } },
    ["m", 2, 1],
  ],
  [
    "LangChain in JavaScript",
    {
      response_metadata: { tokenUsage: { promptTokens: 5, completionTokens: 6, totalTokens: 11 } },
    },
    ["", 5, 6, 11],
  ],
  ["OpenAI", { model: "m", usage: { prompt_tokens: 5, completion_tokens: 0 } }, ["m", 5, 0]],
  [
    "Anthropic",
    {
      usage: {
        input_tokens: 3,
        cache_read_input_tokens: 100,
        cache_creation_input_tokens: 20,
        output_tokens: 7,
      },
    },
    ["", 123, 7],
  ],
  [
    "Google ADK",
    {
      model_version: "m",
      usage_metadata: { prompt_token_count: 1, candidates_token_count: 2, total_token_count: 3 },
    },
    ["m", 1, 2, 3],
  ],
  [
    "Pydantic AI",
    { model_name: "m", usage: { request_tokens: 4, response_tokens: 5 } },
    ["m", 4, 5],
  ],
  ["only a total", { usage: { total_tokens: 9 } }, ["", undefined, undefined, 9]],
])("model and tokens of %s are read", (_, fields, [model, input, output, total]) => {
  expect(modelOf(fields)).toBe(model);
  expect(usageOf(fields)).toEqual({ input, output, total });
});

test.each<Fields>([
  {},
  { usage: null, usage_metadata: [1], response_metadata: "x", model: 4 },
  { usage: { input_tokens: -1, output_tokens: 1.5, total_tokens: "7" } },
  { usage: { input_tokens: 1e300 } },
])("%j reports nothing", (fields) => {
  expect(usageOf(fields)).toBeUndefined();
  expect(modelOf(fields)).toBe("");
});

test("events that wrap a message report for it", () => {
  const event = {
    author: "shop",
    content: { role: "model", parts: [{ text: "hi" }] },
    usageMetadata: { promptTokenCount: 8 },
    modelVersion: "m",
  };
  const response = {
    kind: "response",
    model_name: "n",
    usage: { input_tokens: 1, output_tokens: 2 },
    parts: [],
  };
  const [first, second] = messagesOf([event, response]) ?? [];
  expect([first?.model, first?.usage?.input]).toEqual(["m", 8]);
  expect([second?.model, second?.usage?.output]).toEqual(["n", 2]);
});

function sums(...messages: Fields[]) {
  return sumsOf(messagesOf(messages) ?? []);
}

const ai = (fields: Fields): Fields => ({ role: "assistant", content: "a", ...fields });
const used = (input: number, output: number): Fields => ({
  usage: { prompt_tokens: input, completion_tokens: output },
});

test("sums say how many answers report their tokens", () => {
  const call = { tool_calls: [{ id: "1", function: { name: "look", arguments: "{}" } }] };
  expect(
    sums({ role: "user", content: "q" }, ai({ ...used(10, 2), ...call }), ai(used(5, 1)), ai({})),
  ).toEqual({
    calls: 1,
    usage: { input: 15, output: 3, total: undefined },
    answers: 3,
    reporting: 2,
  });
});

test("tokens that no message reports are unknown, not 0", () => {
  expect(sums(ai({})).usage).toEqual({ input: undefined, output: undefined, total: undefined });
});

test("an answer that was saved in parts or saved again costs once, as reported last", () => {
  const sum = sums(
    ai({ id: "m1", ...used(10, 1) }),
    ai({ id: "m1", ...used(10, 4) }),
    ai({ id: "m1" }),
  );
  expect(sum).toMatchObject({ usage: { input: 10, output: 4 }, answers: 1, reporting: 1 });
});
