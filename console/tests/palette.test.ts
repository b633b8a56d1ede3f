import { create } from "@bufbuild/protobuf";
import { ThreadSchema } from "@contract/thread_pb.js";
import { expect, test } from "vitest";
import { type Action, CHECKPOINT_ACTIONS, start } from "../src/actions/action.ts";
import {
  type Findable,
  groupsFor,
  hasWords,
  MOST_THREADS,
  threadsFor,
} from "../src/palette/entries.ts";

function named(...names: string[]) {
  return names.map((threadId) => create(ThreadSchema, { threadId }));
}

const run = () => {};
const fork: Action = { ...CHECKPOINT_ACTIONS.fork, run };
const remove: Action = { ...CHECKPOINT_ACTIONS.label, name: "Delete", place: "danger", run };
const page = { name: "Threads", href: "/threads", icon: [], keys: ["g", "t"], below: [] };
const FINDABLE: Findable = {
  offers: [
    { title: "This checkpoint", actions: [fork] },
    { title: "This thread", actions: [{ ...fork, name: "Copy the fork" }, remove] },
  ],
  pages: [page],
  commands: [],
  threads: named("fork 1", "other"),
};

function shown(query: string) {
  return groupsFor(query, FINDABLE).map(({ title, entries }) => [
    title,
    ...entries.map(({ name }) => name),
  ]);
}

test("without words all is listed, and nothing is searched for", () => {
  expect(shown(" ")).toEqual([
    ["This checkpoint", "Fork"],
    ["This thread", "Copy the fork", "Delete"],
    ["Pages", "Threads"],
    ["Threads", "fork 1", "other"],
  ]);
});

test("words find actions, pages and threads, and the search is last", () => {
  expect(shown("FORK")).toEqual([
    ["This checkpoint", "Fork"],
    ["This thread", "Copy the fork"],
    ["Threads", "fork 1"],
    ["Search", "Search for “FORK” in what happened"],
  ]);
  expect(shown("nothing has this").map(([title]) => title)).toEqual(["Search"]);
});

test("entries have their keys, their colour and an ID of their own", () => {
  const entries = groupsFor("", FINDABLE).flatMap((group) => group.entries);
  expect(new Set(entries.map(({ id }) => id)).size).toBe(entries.length);
  expect(entries.map(({ keys }) => keys?.join(" "))).toContain("g t");
  expect(entries.filter((entry) => entry.isDangerous).map(({ name }) => name)).toEqual(["Delete"]);
});

test("a name that begins with the words is first", () => {
  const offers = [
    {
      title: "t",
      actions: [
        { ...fork, name: "Go and copy" },
        { ...fork, name: "Copy" },
      ],
    },
  ];
  const [group] = groupsFor("cop", { ...FINDABLE, offers });
  expect(group?.entries.map(({ name }) => name)).toEqual(["Copy", "Go and copy"]);
});

test("a name has the words in any order, and no word is a pattern", () => {
  expect(hasWords("Invoice 12", "12 inv")).toBe(true);
  expect(hasWords("Invoice 12", "13 inv")).toBe(false);
  expect(hasWords("aaa", "a+")).toBe(false);
  expect(hasWords("ÄRGER", "ärg")).toBe(true);
});

test("threads keep their order, and only the first are listed", () => {
  const many = Array.from({ length: 2 * MOST_THREADS }, (_, index) => `thread ${index}`);
  const found = threadsFor("thread", named("other", ...many));
  expect(found.map(({ threadId }) => threadId)).toEqual(many.slice(0, MOST_THREADS));
});

test("an action runs, or opens an address", () => {
  const opened: string[] = [];
  start({ href: "/threads" }, (href) => opened.push(href));
  start({ run: () => opened.push("ran") }, (href) => opened.push(href));
  expect(opened).toEqual(["/threads", "ran"]);
});

test("no two keys of a checkpoint are the same, and none has another meaning", () => {
  const keys = Object.values(CHECKPOINT_ACTIONS).map(({ key }) => key);
  expect(new Set(keys).size).toBe(keys.length);
  expect(keys.filter((key) => "gjk/?".includes(key))).toEqual([]);
});
