import { create } from "@bufbuild/protobuf";
import { type Checkpoint, CheckpointSchema } from "@contract/checkpoint_pb.js";
import { ChannelSchema, type PendingWrite, PendingWriteSchema } from "@contract/value_pb.js";
import { expect, test } from "vitest";
import { conversationsOf } from "../../src/checkpoint/conversation/conversations.ts";
import {
  isOfFramework,
  metadataOf,
  originsOf,
  taskName,
  tasksOf,
} from "../../src/checkpoint/describe.ts";
import { versionText } from "../../src/checkpoint/values.ts";
import type { Json } from "../../src/parts/json/json.ts";

function bytes(json: Json): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(json));
}

type Fields = Partial<Pick<Checkpoint, "metadataJson">> & {
  lineage?: { forkedFrom?: string; adoptedFrom?: string };
};

function checkpoint(fields: Fields): Checkpoint {
  return create(CheckpointSchema, { ref: { checkpointId: "1f1e931f-558f-6db8" }, ...fields });
}

function write(taskId: string, taskPath: string, channel: string, json: Json): PendingWrite {
  const content = { case: "value" as const, value: { type: "json", data: bytes(json) } };
  return create(PendingWriteSchema, { taskId, taskPath, channel, content });
}

test("metadata that is not JSON is told, and nothing is taken from it", () => {
  const { whole, step } = metadataOf(checkpoint({ metadataJson: new Uint8Array([123]) }));
  expect(step).toBe("");
  expect("problem" in whole && whole.problem).toContain("not JSON");
  const odd = metadataOf(checkpoint({ metadataJson: bytes({ step: { a: 1 }, source: "loop" }) }));
  expect([odd.step, odd.source]).toEqual(["", "loop"]);
});

test("origins are the checkpoints that lineage names", () => {
  const from = { threadId: "a:b", checkpointNs: "", checkpointId: "1f0" };
  const origins = (lineage: Fields["lineage"] & object) => originsOf(checkpoint({ lineage }));
  expect(origins({ forkedFrom: "a:b:1f0" })).toEqual([
    { words: "forked from", from, isForeign: false },
  ]);
  expect(origins({ adoptedFrom: "a:b:1f0" })).toMatchObject([{ from, isForeign: true }]);
  expect(originsOf(checkpoint({}))).toEqual([]);
});

test("tasks are named by their node", () => {
  expect(taskName("t", "~__pregel_pull, pay")).toBe("pay");
  expect(taskName("t", "~__pregel_push, 0000000000")).toBe("a parallel task");
  expect(taskName("t", "~__pregel_push, 0000000001", ["a", "b"])).toBe("b");
  expect(taskName("1f1e931f-558f-6db8", "")).toBe("1f1e931f…6db8");
  expect(taskName("00000000-0000-0000-0000-000000000000", "")).toContain("whole graph");
});

test("writes are told by task, in their order", () => {
  const writes = [
    write("1", "p", "a", 1),
    write("1", "p", "b", 2),
    write("2", "p", "a", 3),
    write("1", "p", "c", 4),
  ];
  const told = tasksOf(writes).map((task) => task.writes.map(({ channel }) => channel));
  expect(told).toEqual([["a", "b", "c"], ["a"]]);
});

test("channels of the framework are told from channels of the agent", () => {
  const names = ["__start__", "branch:to:pay", "join:a+b:c", "messages", "__x", "constructor"];
  expect(names.filter(isOfFramework)).toEqual(["__start__", "branch:to:pay", "join:a+b:c"]);
});

test.each([
  [{ case: "text" as const, value: "00000000000000000000000000000012.0830792790871118" }, "12"],
  [{ case: "text" as const, value: "v2" }, "v2"],
  [{ case: "integer" as const, value: 7n }, "7"],
  [{ case: "number" as const, value: 1.5 }, "1.5"],
])("a version is short", (kind, text) => {
  expect(versionText(create(ChannelSchema, { version: { kind } }).version)).toBe(text);
});

test("numbered channels are one conversation", () => {
  const channel = (name: string, json: Json) =>
    create(ChannelSchema, {
      name,
      content: { case: "value", value: { type: "json", data: bytes(json) } },
    });
  const found = conversationsOf([
    channel("items/00000", [{ role: "user", content: "one" }]),
    channel("items/00001", { role: "assistant", content: "two" }),
    channel("plan", ["a"]),
    channel("total", 1),
  ]);
  expect(found.map(({ name, messages }) => [name, messages.length])).toEqual([["items", 2]]);
});
