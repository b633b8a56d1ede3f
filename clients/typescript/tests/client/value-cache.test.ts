/** Loads leave out the values that the client has cached; the cache is bounded. */

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server } from "node:net";

import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { ValueCache, valueDigest } from "../../src/frames/value-cache.js";
import { CheckpointRefSchema, CheckpointSchema } from "../../src/gen/tuskpoint/v1/checkpoint_pb.js";
import {
  SaveCheckpointRequestSchema,
  SaveWritesRequestSchema,
} from "../../src/gen/tuskpoint/v1/checkpoint_service_pb.js";
import { Client, type ConnectionOptions } from "../../src/index.js";
import { TuskPointSaver } from "../../src/langgraph/index.js";
import { newThread, TestServer } from "../kit.js";

const KIB = 1024;
const MIB = 1024 * KIB;
const BYTES = 64 * KIB;

describe("bytes on the connection", () => {
  let server: TestServer;
  let proxy: Server;
  let target: string;
  let moved = 0;

  beforeAll(async () => {
    server = await TestServer.start();
    const [host, port] = server.target.split(":");
    proxy = createServer((client) => {
      const upstream = connect(Number(port), host);
      for (const [from, to] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        from.on("data", (piece: Buffer) => {
          moved += piece.length;
        });
        from.on("error", () => to.destroy());
        from.pipe(to);
      }
    });
    proxy.listen(0, "127.0.0.1");
    await once(proxy, "listening");
    target = `127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  });

  afterAll(async () => {
    proxy.close();
    await server.remove();
  });

  /** Return the bytes sent in both directions during a call. */
  async function bytesOf(call: () => Promise<unknown>): Promise<number> {
    const before = moved;
    await call();
    return moved - before;
  }

  async function using<T>(
    options: ConnectionOptions,
    run: (client: Client) => Promise<T>,
  ): Promise<T> {
    const client = new Client({ target, ...options });
    try {
      return await run(client);
    } finally {
      client.close();
    }
  }

  function pages(step: number): Record<string, unknown> {
    const names = Array.from({ length: 16 }, (_, number) => `page ${number}`);
    return { ...Object.fromEntries(names.map((name) => [name, name.repeat(11 * KIB)])), step };
  }

  test("a load after a save, or after a load, moves no value that the client has", async () => {
    const thread = newThread();
    await using({}, async (client) => {
      await client.save(thread, pages(1));
      await client.save(thread, pages(2));
      const load = async () => expect((await client.load(thread)).state).toEqual(pages(2));
      expect(await bytesOf(load)).toBeLessThan(10_000);
    });
    await using({}, async (client) => {
      const load = async () => expect((await client.load(thread)).state).toEqual(pages(2));
      expect(await bytesOf(load)).toBeGreaterThan(MIB);
      expect(await bytesOf(load)).toBeLessThan(10_000);
      const shown = async () => client.load(thread, { view: "json" });
      expect(await bytesOf(shown)).toBeGreaterThan(MIB);
    });
    await using({ valueCacheBytes: 0 }, async (client) => {
      await client.load(thread);
      expect(await bytesOf(() => client.load(thread))).toBeGreaterThan(MIB);
    });
  });

  test("a saver loads what it saved in few bytes", async () => {
    const saver = new TuskPointSaver(target);
    const config = { configurable: { thread_id: newThread(), checkpoint_ns: "" } };
    const values = pages(1);
    const versions = Object.fromEntries(Object.keys(values).map((name) => [name, "1"]));
    const checkpoint = {
      v: 4,
      id: "1f000000-0000-6000-8000-000000000001",
      ts: new Date(0).toISOString(),
      channel_values: values,
      channel_versions: versions,
      versions_seen: {},
    };
    const saved = await saver.put(
      config,
      checkpoint,
      { source: "loop", step: 1, parents: {} },
      versions,
    );
    await saver.putWrites(saved, [["page 1", "x".repeat(100 * KIB)]], "task");
    const load = async () => {
      const tuple = await saver.getTuple(config);
      expect(tuple?.checkpoint.channel_values).toEqual(values);
      expect(tuple?.pendingWrites).toEqual([["task", "page 1", "x".repeat(100 * KIB)]]);
    };
    expect(await bytesOf(load)).toBeLessThan(10_000);
    saver.close();
  });

  test("what a caller does to a loaded value stays with the caller", async () => {
    const thread = newThread();
    await using({}, async (client) => {
      await client.save(thread, { text: "x".repeat(5000) });
      for (let round = 0; round < 3; round += 1) {
        const data = (await client.load(thread)).channels.get("text")?.data;
        expect(Buffer.from(data ?? []).toString()).toBe(`"${"x".repeat(5000)}"`);
        data?.fill(0);
      }
    });
  });
});

describe("what is kept", () => {
  const filled = (size: number, byte = 1) => new Uint8Array(size).fill(byte);
  const refOf = (threadId: string, checkpointId = "1") =>
    create(CheckpointRefSchema, { threadId, checkpointId });

  function save(cache: ValueCache, threadId: string, ...sizes: number[]): void {
    const channels = sizes.map((size, number) => ({
      name: `${number}`,
      content: { case: "value" as const, value: { type: "bytes", data: filled(size) } },
    }));
    const checkpoint = { ref: refOf(threadId), state: { channels } };
    cache.addSaved(create(SaveCheckpointRequestSchema, { checkpoint }), "1");
  }

  function sizes(cache: ValueCache, threadId: string): number[] {
    const held = cache.heldFor(refOf(threadId));
    return held.digests
      .map((digest) => {
        const value = held.get(digest);
        expect(valueDigest("bytes", value?.data ?? filled(0))).toEqual(digest);
        return value?.data.length ?? 0;
      })
      .sort((one, other) => one - other);
  }

  test("small values, large values and values of unused threads are dropped", () => {
    const cache = new ValueCache(BYTES);
    save(cache, "t", 1023, 1024, 16 * KIB, 16 * KIB + 1);
    expect(sizes(cache, "t")).toEqual([1024, 16 * KIB]);
    for (let number = 0; number < 10; number += 1) {
      save(cache, `${number}`, 15 * KIB, 14 * KIB);
      save(cache, "used", 10 * KIB);
      expect(cache.size).toBeLessThanOrEqual(BYTES);
    }
    expect([sizes(cache, "used"), sizes(cache, "0")]).toEqual([[10 * KIB], []]);
    const none = new ValueCache(0);
    save(none, "t", 2000);
    expect(sizes(none, "t")).toEqual([]);
  });

  test("a load names the largest values if there are too many", () => {
    const cache = new ValueCache();
    const all = Array.from({ length: 266 }, (_, number) => KIB + number);
    save(cache, "t", ...all);
    expect(sizes(cache, "t")).toEqual(all.slice(10));
  });

  test("writes are kept until another checkpoint is saved", () => {
    const cache = new ValueCache(BYTES);
    const content = { case: "value" as const, value: { type: "bytes", data: filled(3000) } };
    const writes = [{ taskId: "n", channel: "x", content }];
    cache.addWritten(create(SaveWritesRequestSchema, { ref: refOf("t"), writes }));
    save(cache, "t", 2000);
    expect(sizes(cache, "t")).toEqual([2000, 3000]);
    const channels = [{ name: "0", content: { case: "inherit" as const, value: {} } }];
    const checkpoint = { ref: refOf("t", "2"), state: { channels } };
    cache.addSaved(create(SaveCheckpointRequestSchema, { checkpoint }), "2");
    expect(sizes(cache, "t")).toEqual([2000]);
  });

  test("a value that was left out and not named is refused", () => {
    const channels = [{ name: "x", digest: filled(32), sizeBytes: 2000n }];
    const checkpoint = create(CheckpointSchema, { ref: refOf("t"), state: { channels } });
    const held = new ValueCache().heldFor(refOf("t"));
    expect(() => held.fill(checkpoint)).toThrow('"x" that the client did not name');
  });

  test("a size that is not a number of bytes is refused", () => {
    for (const valueCacheBytes of [-1, 1.5, Number.NaN]) {
      expect(() => new Client({ valueCacheBytes })).toThrow("valueCacheBytes");
    }
  });
});
