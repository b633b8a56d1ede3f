/** The saver against a real server: behavior that the validation suite does not cover. */

import { randomUUID } from "node:crypto";

import { create } from "@bufbuild/protobuf";
import { DeltaSnapshot, emptyCheckpoint, uuid6 } from "@langchain/langgraph-checkpoint";
import type { Checkpoint, CheckpointMetadata } from "@langchain/langgraph-checkpoint";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { Calls } from "../../src/transport/calls.js";
import { Connection } from "../../src/transport/connection.js";
import { InvalidRequest, ThreadDeleted, UnreadableValue } from "../../src/errors.js";
import { View } from "../../src/gen/tuskpoint/v1/checkpoint_pb.js";
import { SaveCheckpointRequestSchema } from "../../src/gen/tuskpoint/v1/checkpoint_service_pb.js";
import { TuskPointSaver } from "../../src/langgraph/index.js";
import { all, TestServer } from "../kit.js";

const METADATA: CheckpointMetadata = { source: "loop", step: 0, parents: {} };
const MIB = 1024 * 1024;

let server: TestServer;
let saver: TuskPointSaver;

beforeAll(async () => {
  server = await TestServer.start();
  saver = new TuskPointSaver(server.target);
});

afterAll(async () => {
  saver?.close();
  await server?.remove();
});

const thread = (extra = {}) => ({ configurable: { thread_id: randomUUID(), ...extra } });

function checkpointOf(values: Record<string, unknown>, version: string | number = 1): Checkpoint {
  const versions = Object.keys(values).map((name) => [name, version]);
  return {
    ...emptyCheckpoint(),
    id: uuid6(0),
    channel_values: values,
    channel_versions: Object.fromEntries(versions),
  };
}

/** Save a checkpoint with only new values; return its config. */
async function save(config: object, values: Record<string, unknown>) {
  const checkpoint = checkpointOf(values);
  return saver.put(config, checkpoint, METADATA, checkpoint.channel_versions);
}

describe("saving", () => {
  it("sends again what the server does not have", async () => {
    const config = thread({ checkpoint_id: "0-not-saved" });
    const checkpoint = checkpointOf({ kept: ["a"], changed: "b" });
    const saved = await saver.put(config, checkpoint, METADATA, { changed: 1 });
    const tuple = await saver.getTuple(saved);
    expect(tuple?.checkpoint.channel_values).toEqual({ kept: ["a"], changed: "b" });
    expect(tuple?.parentConfig?.configurable?.["checkpoint_id"]).toBe("0-not-saved");
  });

  it("carries values of any size", async () => {
    const text = "é".repeat(2 * MIB);
    const bytes = new Uint8Array(3 * MIB).fill(7);
    const config = await save(thread(), { text, bytes, small: 1 });
    await saver.putWrites(
      config,
      [
        ["text", text],
        ["bytes", bytes],
      ],
      "task",
    );
    const next = await save(config, {});
    const channels = ["bytes"];
    const history = await saver.getDeltaChannelHistory({ config: next, channels });
    const [listed] = await all(saver.list(config));
    const loaded = await saver.getTuple(config);
    for (const tuple of [loaded, listed]) {
      const { channel_values: values } = tuple?.checkpoint ?? {};
      expect(isSame(values?.["text"], text) && isSame(values?.["bytes"], bytes)).toBe(true);
      expect(values?.["small"]).toBe(1);
      const [first, second] = tuple?.pendingWrites ?? [];
      expect(isSame(first?.[2], text) && isSame(second?.[2], bytes)).toBe(true);
    }
    const [write] = history["bytes"]?.writes ?? [];
    expect(isSame(history["bytes"]?.seed, bytes) && isSame(write?.[2], bytes)).toBe(true);
  });

  it("twice is the same as once", async () => {
    const checkpoint = checkpointOf({ a: 1 });
    const config = thread();
    const saves = [1, 2].map(() => saver.put(config, checkpoint, METADATA, { a: 1 }));
    const [saved, again] = await Promise.all(saves);
    expect(again).toEqual(saved);
    await saver.putWrites(
      saved ?? {},
      [
        ["a", "first"],
        ["__resume__", "first"],
      ],
      "task",
    );
    await saver.putWrites(
      saved ?? {},
      [
        ["a", "second"],
        ["__resume__", "second"],
      ],
      "task",
    );
    const tuples = await all(saver.list(config));
    expect(tuples.map((tuple) => tuple.pendingWrites)).toEqual([
      [
        ["task", "__resume__", "second"],
        ["task", "a", "first"],
      ],
    ]);
  });

  it("keeps writes that come before their checkpoint", async () => {
    const config = thread();
    const checkpoint = checkpointOf({ a: 1 });
    const named = { configurable: { ...config.configurable, checkpoint_id: checkpoint.id } };
    const certifying = new TuskPointSaver({ target: server.target, durability: "certified" });
    await certifying.putWrites(named, [["a", "early"]], "task");
    certifying.close();
    await saver.put(config, checkpoint, METADATA, { a: 1 });
    expect((await saver.getTuple(named))?.pendingWrites).toEqual([["task", "a", "early"]]);
  });

  it("keeps writes in the order in which the runtime applies them", async () => {
    const config = await save(thread(), {});
    await saver.putWrites(config, [["a", "late"]], "task-1", "~__pregel_pull, z");
    await saver.putWrites(config, [["a", "early"]], "task-2", "~__pregel_pull, a");
    await saver.putWrites(config, [["a", "first"]], "task-9");
    const tuple = await saver.getTuple(config);
    expect(tuple?.pendingWrites?.map(([, , value]) => value)).toEqual(["first", "early", "late"]);
  });

  it("leaves metadata as it is, and summarizes what happened", async () => {
    const config = thread({ user: "not in it", __pregel_read: () => undefined });
    const nested = { ключ: [1.5, null, true] };
    const metadata = { ...METADATA, step: 3, nested, run_id: "r" };
    const named = new TuskPointSaver({ target: server.target, agentId: "planner" });
    const saved = await named.put(config, checkpointOf({ topic: "a" }), metadata, { topic: 1 });
    named.close();
    expect(Object.keys(saved)).toEqual(["configurable"]);
    const tuple = await saver.getTuple(saved);
    expect(tuple?.config).toEqual(saved);
    expect(tuple?.metadata).toEqual(metadata);
    const calls = new Calls(new Connection({ target: server.target }));
    const entry = await calls.getCheckpoint(refOf(saved), { view: View.ENTRY });
    calls.connection.close();
    expect(entry?.summary).toBe("step 3: step finished; changed topic");
  });

  it("takes the caller's summary and vector", async () => {
    const summarizing = new TuskPointSaver({
      target: server.target,
      summarize: () => "as summarized",
      vectorize: () => [0.5, -0.5],
      searchable: true,
    });
    const saved = await summarizing.put(thread(), checkpointOf({}), METADATA, {});
    const config = thread({ tuskpoint_summary: "by the config" });
    const configured = await summarizing.put(config, checkpointOf({}), METADATA, {});
    summarizing.close();
    const calls = new Calls(new Connection({ target: server.target }));
    const summaries = [saved, configured].map(async (one) => {
      const entry = await calls.getCheckpoint(refOf(one), { view: View.ENTRY });
      return entry?.summary;
    });
    expect(await Promise.all(summaries)).toEqual(["as summarized", "by the config"]);
    calls.connection.close();
  });

  it("refuses what names no thread or checkpoint before anything is sent", async () => {
    const nowhere = new TuskPointSaver("127.0.0.1:1");
    await expect(nowhere.put({}, checkpointOf({}), METADATA, {})).rejects.toThrow(InvalidRequest);
    await expect(nowhere.putWrites(thread(), [["a", 1]], "task")).rejects.toThrow(/checkpoint_id/);
    expect(await nowhere.getTuple({})).toBeUndefined();
    const half = { configurable: { thread_id: "half \ud800" } };
    await expect(nowhere.getTuple(half)).rejects.toThrow(InvalidRequest);
    nowhere.close();
  });

  it("refuses what could not be read again, and names the channel", async () => {
    const config = await save(thread(), {});
    const call = () => undefined;
    const refused = /call: a function cannot be written as JSON/;
    await expect(save(config, { call })).rejects.toThrow(refused);
    await expect(saver.putWrites(config, [["call", call]], "task")).rejects.toThrow(refused);
  });
});

describe("reading", () => {
  it.each([0, -1])("lists nothing with a limit of %i", async (limit) => {
    const config = thread();
    await save(config, {});
    expect(await all(saver.list(config, { limit }))).toEqual([]);
  });

  it("lists newest first, from all threads, and only what matches", async () => {
    const metadata = { ...METADATA, marked: { by: "us" } };
    const configs = [];
    for (const config of [thread(), thread({ checkpoint_ns: "child" })]) {
      const checkpoint = checkpointOf({});
      configs.push(await saver.put(config, checkpoint, metadata, {}));
    }
    const filter = { marked: { by: "us" } };
    const tuples = await all(saver.list({}, { filter }));
    expect(tuples.map((tuple) => tuple.config)).toEqual(configs.reverse());
    const [newest] = configs;
    const older = await all(saver.list({ configurable: {} }, { filter, before: newest ?? {} }));
    expect(older.map((tuple) => tuple.config)).toEqual(configs.slice(1));
    expect(await all(saver.list({}, { filter: { marked: { by: "others" } } }))).toEqual([]);
  });

  it("takes IDs of any script, and numbers as texts", async () => {
    const config = thread({ checkpoint_ns: "узел:1|子" });
    const saved = await save(config, { имя: "значение 🦣" });
    expect((await saver.getTuple(config))?.config).toEqual(saved);
    const numbered = { configurable: { thread_id: 9_000_000 + Math.trunc(Math.random() * 1e6) } };
    const { configurable } = await save(numbered, {});
    expect(configurable?.["thread_id"]).toBe(String(numbered.configurable.thread_id));
    await saver.deleteThread(numbered.configurable.thread_id as unknown as string);
    expect(await saver.getTuple(numbered)).toBeUndefined();
  });

  it("distinguishes a value that is null from no value", async () => {
    const checkpoint = checkpointOf({ nothing: null, gone: undefined });
    const config = await saver.put(thread(), checkpoint, METADATA, { nothing: 1, gone: 1 });
    const tuple = await saver.getTuple(config);
    expect(tuple?.checkpoint.channel_values).toStrictEqual({ nothing: null });
    expect(tuple?.checkpoint.channel_versions).toEqual({ nothing: 1, gone: 1 });
  });

  it("names the channel that a Python agent wrote in its own encoding", async () => {
    const config = thread();
    const calls = new Calls(new Connection({ target: server.target }));
    const value = { type: "msgpack", data: new Uint8Array([1]) };
    const content = { case: "value" as const, value };
    const version = { kind: { case: "text" as const, value: "1" } };
    const state = { schemaVersion: 4, channels: [{ name: "messages", version, content }] };
    const ref = { threadId: config.configurable.thread_id, checkpointId: uuid6(0) };
    const checkpoint = { ref, state };
    await calls.saveCheckpoint(create(SaveCheckpointRequestSchema, { checkpoint }));
    calls.connection.close();
    await expect(saver.getTuple(config)).rejects.toThrow(UnreadableValue);
    await expect(all(saver.list(config))).rejects.toThrow(/'messages'.*portable serializer/);
  });
});

describe("delta channels", () => {
  it("are rebuilt from the path only, a fork's other branch left out", async () => {
    const first = await save(thread(), { items: new DeltaSnapshot([0]) });
    await saver.putWrites(first, [["items", [1]]], "task");
    const second = await save(first, {});
    await saver.putWrites(
      second,
      [
        ["items", [2]],
        ["other", "x"],
      ],
      "task",
    );
    const fork = await save(first, {});
    await saver.putWrites(fork, [["items", ["fork"]]], "task");
    const ends = [await save(second, {}), await save(fork, {})];
    const channels = ["items", "other"];
    const histories = ends.map((config) => saver.getDeltaChannelHistory({ config, channels }));
    const [main, forked] = await Promise.all(histories);
    const writes = [
      ["task", "items", [1]],
      ["task", "items", [2]],
    ];
    expect(main).toEqual({
      items: { seed: new DeltaSnapshot([0]), writes },
      other: { writes: [["task", "other", "x"]] },
    });
    expect(forked?.["items"]?.writes.map(([, , value]) => value)).toEqual([[1], ["fork"]]);
  });

  it("have no history where there is none", async () => {
    const channels = ["items"];
    for (const config of [{}, thread(), thread({ checkpoint_id: "unknown" })]) {
      const history = await saver.getDeltaChannelHistory({ config, channels });
      expect(history).toStrictEqual({ items: { writes: [] } });
    }
    expect(await saver.getDeltaChannelHistory({ config: thread(), channels: [] })).toEqual({});
  });
});

describe("deleting", () => {
  it("ends a thread, and late saves do not bring it back", async () => {
    const config = await save(thread(), { a: 1 });
    await saver.deleteThread(config.configurable?.["thread_id"]);
    await expect(save(config, { a: 2 })).rejects.toThrow(ThreadDeleted);
    await expect(saver.putWrites(config, [["a", 1]], "task")).rejects.toThrow(ThreadDeleted);
    expect(await saver.getTuple(config)).toBeUndefined();
    await saver.deleteThread("never there");
  });
});

/** Compare large values; `expect` would compare each byte separately. */
function isSame(value: unknown, expected: string | Uint8Array): boolean {
  return expected instanceof Uint8Array
    ? value instanceof Uint8Array && Buffer.compare(value, expected) === 0
    : value === expected;
}

function refOf(config: { configurable?: Record<string, unknown> }) {
  const { thread_id, checkpoint_ns, checkpoint_id } = config.configurable ?? {};
  return {
    threadId: String(thread_id),
    checkpointNs: String(checkpoint_ns),
    checkpointId: String(checkpoint_id),
  };
}
