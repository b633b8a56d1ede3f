// LangGraph.js's own serializer, driven over standard input: one JSON object per line each way.
//
//     node portable_peer.mjs PACKAGE_JSON      (of a package with LangGraph.js installed)
//
// {"do": "again", "type", "data"}   load a value, describe it, save it again
// {"do": "make", "name"}            save a value that JavaScript creates
//
// Data travels in base64. Answers: {"type", "data", "shown"} or {"problem"}.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { inspect } from "node:util";

const load = createRequire(process.argv[2]);
const { DeltaSnapshot, JsonPlusSerializer } = load("@langchain/langgraph-checkpoint");
const { Overwrite, Send } = load("@langchain/langgraph");
const messages = load("@langchain/core/messages");
const { Document } = load("@langchain/core/documents");
const { StringPromptValue } = load("@langchain/core/prompt_values");

const serializer = new JsonPlusSerializer();

const MADE = {
  null: () => null,
  undefined: () => undefined,
  true: () => true,
  text: () => "tusk \u{1f9a3} \ud800",
  integer: () => Number.MAX_SAFE_INTEGER,
  fraction: () => 0.1,
  large: () => 2 ** 60,
  huge: () => 1e300,
  date: () => new Date(Date.UTC(2026, 0, 2, 3, 4, 5, 678)),
  bytes: () => new Uint8Array([0, 255]),
  buffer: () => ({ held: Buffer.from([1, 2]) }),
  nested_bytes: () => ({ held: [new Uint8Array([0, 255])] }),
  set: () => new Set(["b", "a"]),
  set_of_lists: () => new Set([[1, [2]], [3]]),
  set_of_sets: () => new Set([new Set([1])]),
  set_of_objects: () => new Set([{ a: 1 }]),
  set_of_one_and_true: () => new Set([1, true]),
  map: () => new Map([["a", 1]]),
  map_of_numbers: () => new Map([[1, "one"], ["1", "text"]]),
  map_of_objects: () => new Map([[{ a: 1 }, 2]]),
  regexp: () => /tusks?/giu,
  error: () => new TypeError("no tusks"),
  holes: () => ({ gone: undefined, list: [undefined, 1], kept: null }),
  snapshot: () => new DeltaSnapshot([new messages.HumanMessage({ content: "hi", id: "h" })]),
  send: () => new Send("dig", { topic: "tusks" }),
  timed_send: () => new Send("dig", { topic: "tusks" }, { timeout: { idleTimeout: 1500 } }),
  overwrite: () => new Overwrite(["a"]),
  failure: () => ({ message: "no tusks", name: "TypeError" }),
  document: () => new Document({ pageContent: "text", metadata: { page: 1 } }),
  prompt: () => new StringPromptValue("a prompt"),
  look_alike: () => ({ lc: 2, type: "constructor", id: ["Function"], args: ["evil()"] }),
  human: () => new messages.HumanMessage("hello"),
  blocks: () =>
    new messages.HumanMessage({
      content: [
        { type: "text", text: "look" },
        { type: "image_url", image_url: { url: "https://example.invalid/tusk.png" } },
      ],
      id: "h-1",
      name: "ann",
      additional_kwargs: { seen: new Uint8Array([7]), extra: { lc: 1, note: "mine" } },
    }),
  ai: () =>
    new messages.AIMessage({
      content: "",
      id: "ai-1",
      tool_calls: [{ name: "dig", args: { depth: 2 }, id: "call-1", type: "tool_call" }],
      invalid_tool_calls: [{ name: "dig", args: "{", id: "call-2", error: "Malformed args." }],
      usage_metadata: { input_tokens: 1, output_tokens: 2, total_tokens: 3 },
      response_metadata: { model_name: "m" },
    }),
  ai_sparse: () =>
    new messages.AIMessage({
      content: "",
      tool_calls: [{ name: "dig", args: {} }],
      invalid_tool_calls: [{ args: "{" }],
    }),
  ai_blocks: () =>
    new messages.AIMessage({
      contentBlocks: [
        { type: "text", text: "digging" },
        { type: "tool_call", id: "call-1", name: "dig", args: { depth: 2 } },
      ],
    }),
  ai_chunk: () =>
    new messages.AIMessageChunk({
      content: "di",
      id: "ai-2",
      tool_call_chunks: [{ name: "dig", args: "{}", id: "call-1", index: 0 }],
    }),
  tool: () =>
    new messages.ToolMessage({
      content: "found",
      tool_call_id: "call-1",
      status: "error",
      artifact: { found: [1, 2] },
      name: "dig",
    }),
  system: () => new messages.SystemMessage("be brief"),
  chat: () => new messages.ChatMessage({ content: "aye", role: "mate" }),
  function: () => new messages.FunctionMessage({ content: "1", name: "count" }),
  remove: () => new messages.RemoveMessage({ id: "h-1" }),
};

async function saved(value) {
  const [type, data] = await serializer.dumpsTyped(value);
  const shown = inspect(value, { depth: 12, customInspect: false }).replace(/\s+/g, " ");
  return { type, data: Buffer.from(data).toString("base64"), shown };
}

async function answer({ do: what, type, data, name }) {
  if (what === "make") {
    return saved(MADE[name]());
  }
  return saved(await serializer.loadsTyped(type, new Uint8Array(Buffer.from(data, "base64"))));
}

console.log(JSON.stringify(Object.keys(MADE)));
for await (const line of createInterface({ input: process.stdin })) {
  const reply = await answer(JSON.parse(line)).catch((error) => ({ problem: String(error) }));
  console.log(JSON.stringify(reply));
}
