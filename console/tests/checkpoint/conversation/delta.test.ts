import { expect, test } from "vitest";
import { messagesOf } from "../../../src/checkpoint/conversation/messages.ts";
import type { Json } from "../../../src/parts/json/json.ts";

/** Return the texts of the messages that a value is shown as; undefined: it is not a conversation. */
function texts(value: Json): string | undefined {
  return messagesOf(value)
    ?.map(({ blocks }) => blocks.map((block) => ("text" in block ? block.text : "?")).join())
    .join(" ");
}

const human = (content: string, id: string | null = content): Json => ({
  $type: "langchain_core.messages.human.HumanMessage",
  content,
  id,
});
const removal = (id: string): Json => ({
  $type: "langchain_core.messages.modifier.RemoveMessage",
  content: "",
  id,
});
const inJavaScript = (name: string, kwargs: { [key: string]: Json }): Json => ({
  lc: 1,
  type: "constructor",
  id: ["langchain_core", "messages", name],
  kwargs,
});
const snapshot = (value: Json): Json => ({
  $type: "langgraph.checkpoint.serde.types._DeltaSnapshot",
  value,
});
const [a, b, c] = [human("a"), human("b"), human("c")];
const ALL = removal("__remove_all__");

test.each<[string, Json, string]>([
  ["without a stored value", { $delta: [[a], b] }, "a b"],
  ["onto a snapshot", { $delta: [[b], c], $seed: snapshot([a]) }, "a b c"],
  ["onto a value of an ordinary channel", { $delta: [b], $seed: [a] }, "a b"],
  [
    "onto a snapshot of LangGraph.js",
    { $delta: [b], $seed: { lc: 2, type: "delta_snapshot", value: [a] } },
    "a b",
  ],
  ["onto null: empty", { $delta: [[a]], $seed: null }, "a"],
  ["of the same message: in its place", { $delta: [human("A", "a")], $seed: [a, b] }, "A b"],
  ["without IDs: at the end", { $delta: [human("a", null)], $seed: [human("a", null)] }, "a a"],
  ["that remove a message", { $delta: [[removal("a"), removal("x")]], $seed: [a, b] }, "b"],
  ["that add a removed message: at the end", { $delta: [removal("a"), a], $seed: [a, b] }, "b a"],
  ["that remove all", { $delta: [[a], [ALL, b]], $seed: [c] }, "b"],
  ["that remove all twice", { $delta: [ALL, a, [b, ALL], c] }, "c"],
  ["that remove all last", { $delta: [[a], ALL] }, ""],
  [
    "that remove all in LangGraph.js",
    {
      $delta: [
        inJavaScript("HumanMessage", { content: "a", id: "a" }),
        inJavaScript("RemoveMessage", { id: "__remove_all__" }),
        inJavaScript("HumanMessage", { content: "b", id: "b" }),
      ],
    },
    "b",
  ],
  [
    "that replace the channel",
    { $delta: [[a], { $type: "langgraph.types.Overwrite", value: [b] }, c], $seed: [a] },
    "b c",
  ],
  ["that replace it as JSON", { $delta: [{ __overwrite__: [b] }], $seed: [a] }, "b"],
  [
    "that replace it as an API does",
    { $delta: [a, { type: "__overwrite__", value: [b] }, { __overwrite__: null }, c] },
    "c",
  ],
])("a delta channel has its writes %s", (_, value, shown) => {
  expect(texts(value)).toBe(shown);
});

test("a delta channel of other items is not a conversation", () => {
  expect(texts({ $delta: [["note"]], $seed: ["first"] })).toBeUndefined();
});

test("a list and a snapshot are shown as they were stored", () => {
  expect(texts([a, ALL, a])).toBe("a  a");
  expect(texts(snapshot([a, b]))).toBe("a b");
});
