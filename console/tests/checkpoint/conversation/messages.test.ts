import { expect, test } from "vitest";
import {
  type Block,
  type Message,
  messageOf,
  messagesOf,
} from "../../../src/checkpoint/conversation/messages.ts";
import type { Json } from "../../../src/parts/json/json.ts";

function told(value: Json): string {
  return (messagesOf(value) ?? []).map(saidIn).join(" | ");
}

/** Return a message in few words. */
function saidIn({ role, name, blocks, calls, results }: Message): string {
  const called = calls.map((call) => `${call.name}#${call.id}${JSON.stringify(call.args)}`);
  const returned = results.flatMap((result) => [
    result.name === name ? "" : result.name,
    ...result.blocks.map(inBlock),
    `answers:${result.callId}${result.failed ? "!" : ""}`,
  ]);
  return [role, name, ...blocks.map(inBlock), ...called, ...returned].filter(Boolean).join(" ");
}

function inBlock(block: Block): string {
  return block.kind === "data" ? JSON.stringify(block.value) : `${block.kind}:${block.text}`;
}

const langchain = (name: string, fields: { [key: string]: Json }): Json => ({
  $type: `langchain_core.messages.${name}`,
  ...fields,
});

test.each<[string, Json, string]>([
  [
    "LangChain in Python",
    [
      langchain("human.HumanMessage", { content: "hello", name: "Ada" }),
      langchain("ai.AIMessage", {
        content: [{ type: "text", text: "wait" }, { type: "image_url", image_url: {} }, "!"],
        tool_calls: [{ name: "look", args: { at: 1 }, id: "c1", type: "tool_call" }],
        invalid_tool_calls: [{ name: "bad", args: "{", id: "c2", error: "no" }],
      }),
      langchain("tool.ToolMessage", { content: "no", tool_call_id: "c1", status: "error" }),
      langchain("modifier.RemoveMessage", { id: "m", content: "" }),
    ],
    'human Ada text:hello | assistant text:wait media:image_url text:! look#c1{"at":1} bad#c2"{" | ' +
      "tool text:no answers:c1! | remove m",
  ],
  [
    "LangChain in JavaScript",
    [
      {
        lc: 1,
        type: "constructor",
        id: ["langchain_core", "messages", "AIMessageChunk"],
        kwargs: { content: "on it", tool_calls: [] },
      },
    ],
    "assistant text:on it",
  ],
  [
    "OpenAI",
    [
      { role: "developer", content: "be brief" },
      {
        role: "assistant",
        content: null,
        tool_calls: [
          { id: "1", type: "function", function: { name: "look", arguments: '{"a": [1]}' } },
        ],
      },
      { role: "tool", tool_call_id: "1", content: "done" },
    ],
    'system text:be brief | assistant look#1{"a":[1]} | tool text:done answers:1',
  ],
  [
    "Anthropic",
    [
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "hm" },
          { type: "tool_use", id: "t", name: "look", input: {} },
        ],
      },
      {
        role: "user",
        content: [{ type: "tool_result", tool_use_id: "t", content: "x", is_error: true }],
      },
    ],
    "assistant reasoning:hm look#t{} | tool text:x answers:t!",
  ],
  [
    "the OpenAI Agents SDK",
    [
      { role: "user", content: "hi" },
      { type: "function_call", call_id: "f", name: "look", arguments: "{}" },
      { type: "function_call_output", call_id: "f", output: "seen" },
      { type: "message", role: "assistant", content: [{ type: "output_text", text: "bye" }] },
    ],
    "human text:hi | assistant look#f{} | tool text:seen answers:f | assistant text:bye",
  ],
  [
    "Google ADK",
    [
      { author: "user", content: { role: "user", parts: [{ text: "hi" }] } },
      {
        author: "shop",
        content: { role: "model", parts: [{ function_call: { id: "g", name: "buy", args: {} } }] },
      },
      {
        author: "shop",
        content: {
          role: "user",
          parts: [{ function_response: { id: "g", name: "buy", response: { ok: true } } }],
        },
      },
    ],
    'human text:hi | assistant buy#g{} | tool buy {"ok":true} answers:g',
  ],
  [
    "Pydantic AI",
    [
      {
        id: "e",
        message: { kind: "request", parts: [{ part_kind: "user-prompt", content: "hi" }] },
      },
      {
        kind: "response",
        parts: [
          { part_kind: "text", content: "yes" },
          { part_kind: "tool-call", tool_name: "look", args: '{"a":1}', tool_call_id: "p" },
        ],
      },
      {
        kind: "request",
        parts: [{ part_kind: "tool-return", tool_name: "look", content: "ok", tool_call_id: "p" }],
      },
    ],
    'human text:hi | assistant text:yes look#p{"a":1} | tool look text:ok answers:p',
  ],
  [
    "the Claude Agent SDK",
    [
      { type: "summary", summary: "about" },
      { type: "user", message: { role: "user", content: "hi" } },
    ],
    'other {"type":"summary","summary":"about"} | human text:hi',
  ],
  [
    "Anthropic, with several results in one message",
    [
      {
        role: "assistant",
        content: [
          { type: "server_tool_use", id: "s", name: "find", input: {} },
          { type: "web_search_tool_result", tool_use_id: "s", content: [{ url: "u" }] },
        ],
      },
      {
        role: "user",
        content: [
          { type: "tool_result", tool_use_id: "a", content: "x" },
          { type: "tool_result", tool_use_id: "b", content: [{ type: "text", text: "y" }] },
          { type: "text", text: "and then" },
        ],
      },
    ],
    'assistant find#s{} {"url":"u"} answers:s | human text:and then text:x answers:a text:y answers:b',
  ],
  ["a state with messages", { messages: [{ role: "user", content: "hi" }] }, "human text:hi"],
])("messages of %s are read", (_, value, text) => {
  expect(told(value)).toBe(text);
});

test("a call that is in the content too is shown once", () => {
  const value = langchain("ai.AIMessage", {
    content: [{ type: "tool_use", id: "c", name: "look", input: {} }],
    tool_calls: [{ name: "look", args: {}, id: "c" }],
  });
  expect(messageOf(value)?.calls).toHaveLength(1);
});

test.each<[Json]>([
  [null],
  ["text"],
  [[]],
  [[1, 2]],
  [{ plan: [] }],
  [[{ name: "a" }]],
  [[{ content: "no role" }]],
  [[{ role: "user", content: "one" }, 1, 2, 3]],
])("%j is not a conversation", (value) => {
  expect(messagesOf(value)).toBeUndefined();
});
