import { expect, test } from "vitest";
import { messagesOf } from "../../../src/checkpoint/conversation/messages.ts";
import { turnsOf } from "../../../src/checkpoint/conversation/pairing.ts";
import type { Json } from "../../../src/parts/json/json.ts";

const human: Json = { role: "user", content: "q" };
const ai = (...ids: string[]): Json => ({
  role: "assistant",
  content: null,
  tool_calls: ids.map((id) => ({ id, function: { name: `do-${id}`, arguments: "{}" } })),
});
const tool = (id: string, content: string): Json => ({ role: "tool", tool_call_id: id, content });
const anthropic = (...blocks: [string, string][]): Json => ({
  role: "user",
  content: blocks.map(([id, text]) =>
    id ? { type: "tool_result", tool_use_id: id, content: text } : { type: "text", text },
  ),
});

/** Return the turns in few words: `call=result`, `call?` while it waits, `call-` if none came. */
function told(...messages: Json[]): string {
  return turnsOf(messagesOf(messages) ?? [])
    .map(({ message: { role, blocks }, calls, results }) => {
      const text = (of: typeof blocks) =>
        of.map((block) => "text" in block && block.text).join("+");
      return [
        role,
        ...calls.map(({ id, result, waits }) =>
          result ? `${id}=${text(result.blocks)}` : `${id}${waits ? "?" : "-"}`,
        ),
        ...results.map((result) => `${result.callId}:${text(result.blocks)}`),
        text(blocks),
      ]
        .filter(Boolean)
        .join(" ");
    })
    .join(" | ");
}

test.each<[string, Json[], string]>([
  ["a call and its result", [human, ai("a"), tool("a", "x")], "human q | assistant a=x"],
  [
    "parallel calls, answered in another order",
    [ai("a", "b", "c"), tool("c", "z"), tool("a", "x")],
    "assistant a=x b? c=z",
  ],
  ["a call without a result", [ai("a"), human], "assistant a- | human q"],
  ["a call that may still be answered", [ai("a", "b"), tool("a", "x")], "assistant a=x b?"],
  ["a result without a call", [tool("a", "x"), ai("a")], "tool a:x | assistant a?"],
  ["a second result", [ai("a"), tool("a", "x"), tool("a", "y")], "assistant a=x | tool a:y"],
  [
    "IDs that every answer uses again",
    [ai("a"), tool("a", "x"), ai("a"), tool("a", "y")],
    "assistant a=x | assistant a=y",
  ],
  ["no IDs", [ai(""), tool("", "x")], "assistant ? | tool :x"],
  [
    "names of JavaScript's objects",
    [ai("__proto__"), tool("constructor", "x")],
    "assistant __proto__? | tool constructor:x",
  ],
  [
    "several results in one message, with words of the person",
    [ai("a", "b"), anthropic(["a", "x"], ["b", "y"], ["", "and?"])],
    "assistant a=x b=y | human and?",
  ],
  [
    "results, but a call for only one",
    [ai("a"), anthropic(["a", "x"], ["d", "w"])],
    "assistant a=x | tool d:w",
  ],
])("%s", (_, messages, turns) => {
  expect(told(...messages)).toBe(turns);
});
