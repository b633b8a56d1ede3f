import { create } from "@bufbuild/protobuf";
import { ThreadSchema, ThreadState } from "@contract/thread_pb.js";
import { expect, test } from "vitest";
import { filterOf, type Group, inPlace, withoutTwins } from "../../src/threads/groups.ts";
import { hasWords, splitByWords } from "../../src/threads/names.ts";

const { FAILED, IDLE } = ThreadState;
const thread = (threadId: string, seq: bigint, incarnation = 1n) =>
  create(ThreadSchema, { threadId, seq, incarnation });
const group = (state: ThreadState, ...threads: Group["threads"]): Group => ({
  state,
  threads,
  more: false,
});
const names = (groups: Group[]) =>
  groups.map(({ threads }) => threads.map(({ threadId, seq }) => `${threadId} ${seq}`));

test("a thread that changed between two listings is only in the later", () => {
  const changed = [group(FAILED, thread("a", 4n), thread("b", 1n)), group(IDLE, thread("a", 5n))];
  expect(names(withoutTwins(changed))).toEqual([["b 1"], ["a 5"]]);
  const restarted = [group(FAILED, thread("a", 9n)), group(IDLE, thread("a", 1n, 2n))];
  expect(names(withoutTwins(restarted))).toEqual([[], ["a 1"]]);
});

test("in place, rows get later facts, and no row comes, goes or moves", () => {
  const shown = [group(FAILED, thread("a", 1n), thread("b", 2n)), group(IDLE, thread("c", 3n))];
  const later = [group(FAILED), group(IDLE, thread("d", 9n), thread("a", 8n), thread("c", 3n))];
  expect(names(inPlace(shown, later))).toEqual([["a 8", "b 2"], ["c 3"]]);
});

test("an address keeps what names something", () => {
  expect(filterOf({ q: "a", state: "failed", since: "7d", agent: "x", label: "y" })).toEqual({
    q: "a",
    state: "failed",
    since: "7d",
    agent: "x",
    label: "y",
  });
  expect(filterOf({ state: "no-such", since: "no-such" })).toEqual({
    q: "",
    state: "",
    since: "",
    agent: "",
    label: "",
  });
});

test("a name matches if it has every word, in any case", () => {
  expect(hasWords("Order-4711-Refund", " refund  order")).toBe(true);
  expect(hasWords("Order-4711", "refund order")).toBe(false);
  expect(hasWords("Order-4711", " ")).toBe(true);
});

test("words are marked in a name, whatever characters they have", () => {
  expect(splitByWords("Order-4711 order", "order")).toEqual(["", "Order", "-4711 ", "order", ""]);
  expect(splitByWords("a(b)*c[d", "(b)* [")).toEqual(["a", "(b)*", "c", "[", "d"]);
  expect(splitByWords("<img>", "")).toEqual(["<img>"]);
});
