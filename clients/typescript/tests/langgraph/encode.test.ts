/** The saver's messages, and the values that it decodes from messages. */

import { create } from "@bufbuild/protobuf";
import {
  DeltaSnapshot,
  JsonPlusSerializer,
  emptyCheckpoint,
} from "@langchain/langgraph-checkpoint";
import type { Checkpoint, CheckpointMetadata } from "@langchain/langgraph-checkpoint";
import { describe, expect, it } from "vitest";

import { UnreadableValue } from "../../src/errors.js";
import { CheckpointSchema, Durability } from "../../src/gen/tuskpoint/v1/checkpoint_pb.js";
import type { Checkpoint as CheckpointMessage } from "../../src/gen/tuskpoint/v1/checkpoint_pb.js";
import { decodeTuple } from "../../src/langgraph/decode.js";
import { encodeCheckpoint, inlineChannels, writeRequests } from "../../src/langgraph/encode.js";
import { bounded, describe as sentence } from "../../src/langgraph/summary.js";
import { nextVersion } from "../../src/langgraph/versions.js";

const serde = new JsonPlusSerializer();
const METADATA: CheckpointMetadata = { source: "loop", step: 1, parents: {} };

const root = { configurable: { thread_id: "thread" } };
const child = { configurable: { thread_id: "thread", checkpoint_ns: "", checkpoint_id: "parent" } };

function checkpointOf(
  values: Record<string, unknown>,
  versions: Record<string, string | number>,
): Checkpoint {
  return { ...emptyCheckpoint(), channel_values: values, channel_versions: versions };
}

/** Return the form in which each channel of a message is sent. */
function contents(message: CheckpointMessage): Record<string, unknown> {
  return Object.fromEntries(
    (message.state?.channels ?? []).map(({ name, content }) => [
      name,
      content.case === "value" ? new TextDecoder().decode(content.value.data) : content.case,
    ]),
  );
}

describe("a checkpoint on the wire", () => {
  it("has inline what is new, and refers to the parent for the rest", async () => {
    const checkpoint = checkpointOf(
      { changed: 1, same: "s", defaulted: [], gone: undefined },
      { changed: 2, same: 1, emptied: 2, gone: 2 },
    );
    const newVersions = { changed: 2, emptied: 2, gone: 2 };
    const saving = { config: child, checkpoint, metadata: METADATA, newVersions };
    const message = await encodeCheckpoint(saving, serde);
    expect(contents(message)).toEqual({
      changed: "1",
      same: "inherit",
      emptied: "empty",
      gone: "empty",
      defaulted: "[]",
    });
    expect(message.parentCheckpointId).toBe("parent");
    await inlineChannels(message, ["same"], checkpoint, serde);
    expect(contents(message)["same"]).toBe('"s"');
  });

  it("has no value for what is not new where there is no parent", async () => {
    const checkpoint = checkpointOf({ a: 1, b: 2 }, { a: 1, b: 1 });
    const saving = { config: root, checkpoint, metadata: METADATA, newVersions: { a: 1 } };
    expect(contents(await encodeCheckpoint(saving, serde))).toEqual({ a: "1", b: "empty" });
  });

  it("is whole if it is a fork without a parent", async () => {
    const checkpoint = checkpointOf({ a: 1, b: 2 }, { a: 1, b: 1 });
    const metadata: CheckpointMetadata = { source: "fork", step: 1, parents: {} };
    const saving = { config: root, checkpoint, metadata, newVersions: {} };
    expect(contents(await encodeCheckpoint(saving, serde))).toEqual({ a: "1", b: "2" });
  });

  it("keeps the type of versions", async () => {
    const versions = { text: "1.x", integer: 7, number: 1.5 };
    const saving = {
      config: root,
      checkpoint: checkpointOf({}, versions),
      metadata: METADATA,
      newVersions: versions,
    };
    const message = await encodeCheckpoint(saving, serde);
    const kinds = message.state?.channels.map((channel) => channel.version?.kind.case);
    expect(kinds).toEqual(["text", "integer", "number"]);
    const tuple = await decodeTuple(message, serde, undefined);
    expect(tuple.checkpoint.channel_versions).toEqual(versions);
  });

  it("names the delta channels", async () => {
    const counters: Record<string, [number, number]> = { counted: [1, 1] };
    const saving = {
      config: root,
      checkpoint: checkpointOf({ stored: new DeltaSnapshot([1]), plain: [1] }, { stored: 1 }),
      metadata: { ...METADATA, counters_since_delta_snapshot: counters },
      newVersions: { stored: 1 },
    };
    const message = await encodeCheckpoint(saving, serde);
    expect(message.state?.deltaChannels).toEqual(["counted", "stored"]);
  });

  it("holds what the values were when it was made", async () => {
    const list = [1];
    const bytes = new Uint8Array([1]);
    const checkpoint = checkpointOf({ list, bytes }, { list: 1, bytes: 1 });
    const metadata = { ...METADATA, note: "before" };
    const saving = { config: root, checkpoint, metadata, newVersions: { list: 1, bytes: 1 } };
    const pending = encodeCheckpoint(saving, serde);
    list.push(2);
    bytes[0] = 2;
    metadata.note = "after";
    const tuple = await decodeTuple(await pending, serde, undefined);
    expect(tuple.checkpoint.channel_values).toEqual({ list: [1], bytes: new Uint8Array([1]) });
    expect(tuple.metadata).toMatchObject({ note: "before" });
  });

  it("returns what other frameworks have beyond LangGraph.js", async () => {
    const checkpoint = { ...emptyCheckpoint(), updated_channels: ["a"], pending_sends: ["b"] };
    const saving = { config: root, checkpoint, metadata: METADATA, newVersions: {} };
    const message = await encodeCheckpoint(saving, serde);
    expect(message.state?.updatedChannels?.names).toEqual(["a"]);
    expect((await decodeTuple(message, serde, undefined)).checkpoint).toEqual(checkpoint);
  });
});

describe("writes on the wire", () => {
  it("have the slots that LangGraph gives them", async () => {
    const [request] = await writeRequests(
      child,
      [
        ["a", 1],
        ["__resume__", 2],
        ["b", undefined],
        ["__error__", 3],
      ],
      "task",
      "~path",
      Durability.JOURNALED,
      serde,
    );
    expect(request?.writes.map(({ channel, idx }) => [channel, idx])).toEqual([
      ["a", 0],
      ["__resume__", -4],
      ["b", 2],
      ["__error__", -1],
    ]);
    expect(request?.writes.every(({ taskPath }) => taskPath === "~path")).toBe(true);
  });

  it("come in several requests if they are many", async () => {
    const writes = Array.from({ length: 4100 }, (): [string, unknown] => ["a", null]);
    const requests = await writeRequests(child, writes, "task", "", Durability.JOURNALED, serde);
    expect(requests.map((request) => request.writes.length)).toEqual([4096, 4]);
    expect(requests[1]?.writes[0]?.idx).toBe(4096);
  });
});

describe("values that JavaScript cannot read", () => {
  const python = (type: string, data: number[]) =>
    create(CheckpointSchema, {
      ref: { threadId: "thread", checkpointId: "one" },
      state: {
        schemaVersion: 4,
        channels: [
          { name: "branch:to:a", content: { case: "value", value: { type: "null" } } },
          {
            name: "messages",
            content: { case: "value", value: { type, data: new Uint8Array(data) } },
          },
        ],
      },
    });

  it("are refused with the name of the channel and what to do", async () => {
    const refused = decodeTuple(python("msgpack", [0x93]), serde, undefined);
    await expect(refused).rejects.toBeInstanceOf(UnreadableValue);
    await expect(refused).rejects.toThrow(/channel 'messages'.*'msgpack'.*portable serializer/);
    await expect(refused).rejects.toMatchObject({ metadata: { channel: "messages" } });
  });

  it("are not taken for JSON that is broken", async () => {
    const refused = decodeTuple(python("json", [0x7b]), serde, undefined);
    await expect(refused).rejects.toThrow(/channel 'messages'.*serializer that wrote it/);
  });
});

describe("versions", () => {
  it("rise, and differ between branches", () => {
    const first = nextVersion(undefined);
    expect(first).toMatch(/^0{31}1\.\d{16}$/);
    const second = nextVersion(first);
    expect(second > first).toBe(true);
    expect(nextVersion(first)).not.toBe(second);
  });

  it("stay numbers in a thread that has numbers", () => {
    expect(nextVersion(41)).toBe(42);
  });

  it("are not made where nothing of ours would sort after the current one", () => {
    expect(() => nextVersion("7")).toThrow(/not padded/);
  });
});

describe("summaries", () => {
  const saved = (extra: Partial<CheckpointMetadata>, values = {}, newVersions = {}) => ({
    config: child,
    checkpoint: {
      ...checkpointOf(values, newVersions),
      versions_seen: { plan: { "branch:to:plan": 2 }, write: { "branch:to:write": 1 } },
    },
    metadata: { ...METADATA, ...extra },
    newVersions,
  });

  it.each([
    [
      saved(
        {},
        { current_plan: "dig", topic: "a", "branch:to:write": null },
        { topic: 3, "branch:to:write": 3, "branch:to:plan": 3 },
      ),
      "step 1: plan ran; changed topic; next write; plan: dig",
    ],
    [saved({ source: "input", step: -1 }, {}, { __start__: 1 }), "step -1: input received"],
    [saved({ source: "update" }), "step 1: state updated from outside"],
    [saved({ source: "fork" }), "step 1: forked from parent"],
    [saved({}, {}, { __pregel_tasks: 5, topic: 5 }), "step 1: sent tasks ran; changed topic"],
  ])("say what happened (%#)", (saving, expected) => {
    expect(sentence(saving)).toBe(expected);
  });

  it("are one line of bounded size", () => {
    expect(bounded(" a\0b\n c ")).toBe("a b c");
    const long = bounded(`x${"é".repeat(2000)}`);
    expect(new TextEncoder().encode(long).length).toBe(1023);
    expect(long.endsWith("é")).toBe(true);
  });
});
