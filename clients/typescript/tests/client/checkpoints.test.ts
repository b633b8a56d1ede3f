/** Saving, loading, listing and searching checkpoints, and the server, against a real server. */

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { Client, Conflict, UnreadableValue } from "../../src/index.js";
import { all, failure, newThread, TestServer } from "../kit.js";

let server: TestServer;
let client: Client;

beforeAll(async () => {
  server = await TestServer.start();
  client = new Client(server.target);
});

afterAll(async () => {
  client.close();
  await server.remove();
});

describe("saving and loading", () => {
  test("a state comes back with all that was saved with it", async () => {
    const thread = newThread();
    const state = { plan: ["read", "write"], n: 3, half: 0.5, none: null, nested: { a: [{}] } };
    const saved = await client.save(thread, state, {
      metadata: { source: "loop", step: 1 },
      summary: "Planned.",
      label: "good",
      agentId: "planner",
    });

    const record = await client.load(thread);

    expect(record.state).toEqual(state);
    expect(record).toMatchObject({
      threadId: thread,
      checkpointId: saved.checkpointId,
      parentCheckpointId: "",
      metadata: { source: "loop", step: 1 },
      summary: "Planned.",
      label: "good",
      seq: 1n,
      durability: "journaled",
      location: undefined,
      agentId: "planner",
    });
    expect(record.created?.getTime()).toBeGreaterThan(0);
    expect(saved).toEqual({
      checkpointId: record.checkpointId,
      durability: "journaled",
      seq: 1n,
    });
    expect((await client.getThread(thread)).agentId).toBe("planner");
  });

  test("what did not change keeps its version, and what changed gets one above all", async () => {
    const thread = newThread();
    await client.save(thread, { kept: "as it was", step: 1 });
    await client.save(thread, { kept: "as it was", step: 2 });

    const [newest, oldest] = await all(client.list(thread, { view: "full" }));

    const first = `${"1".padStart(32, "0")}.${"0".repeat(16)}`;
    const second = `${"2".padStart(32, "0")}.${"0".repeat(16)}`;
    expect(oldest?.channels.get("step")?.version).toBe(first);
    expect(newest?.channels.get("kept")?.version).toBe(first);
    expect(newest?.channels.get("step")?.version).toBe(second);
    expect(newest?.state).toEqual({ kept: "as it was", step: 2 });
  });

  test("a thread that counts with integers continues with integers", async () => {
    const thread = newThread();
    await client.raw.checkpoints.saveCheckpoint({
      checkpoint: {
        ref: { threadId: thread },
        state: {
          schemaVersion: 4,
          channels: [
            {
              name: "n",
              version: { kind: { case: "integer", value: 9007199254740993n } },
              content: { case: "value", value: { type: "json", data: Buffer.from("1") } },
            },
          ],
        },
      },
    });

    await client.save(thread, { n: 2 });

    expect((await client.load(thread)).channels.get("n")?.version).toBe(9007199254740994n);
  });

  test("a save follows the latest, also of another client", async () => {
    const thread = newThread();
    const other = new Client(server.target);
    await client.save(thread, { n: 1 });
    const theirs = await other.save(thread, { n: 2 });
    other.close();

    await client.save(thread, { n: 3 });

    expect((await client.load(thread)).parentCheckpointId).toBe(theirs.checkpointId);
  });

  test("64 saves of one thread at once are all saved, in one line", async () => {
    const thread = newThread();
    const clients = Array.from({ length: 8 }, () => new Client(server.target));
    const saves = Array.from({ length: 64 }, (_, n) => clients[n % 8]?.save(thread, { n }));
    await Promise.all(saves);

    const records = await all(client.list(thread));

    expect(records).toHaveLength(64);
    expect(records.map((one) => one.parentCheckpointId)).toEqual([
      ...records.slice(1).map((one) => one.checkpointId),
      "",
    ]);
    for (const one of clients) {
      one.close();
    }
  });

  test("agents that save at once lose nothing, and none overtakes the head it expects", async () => {
    const thread = newThread();
    const first = await client.save(thread, { n: 0 });
    const one = new Client(server.target);
    const other = new Client(server.target);
    const clients = [client, one, other];
    await Promise.all(clients.map((each, n) => each.save(thread, { n })));

    const records = await all(client.list(thread));
    const late = client.save(thread, { n: 9 }, { expectedHead: first.checkpointId });

    expect(records).toHaveLength(4);
    expect(records.map((one) => one.parentCheckpointId)).toEqual([
      ...records.slice(1).map((one) => one.checkpointId),
      "",
    ]);
    const error = await failure(late);
    expect(error).toBeInstanceOf(Conflict);
    expect(error).toMatchObject({ status: "ABORTED", reason: "HEAD_MOVED" });
    expect(error.metadata["head"]).toBe(records[0]?.checkpointId);
    one.close();
    other.close();
  });

  test("five mebibytes go out and come back in chunks", async () => {
    const thread = newThread();
    const text = "é".repeat(2.5 * 1024 * 1024);
    const state = { text, small: true, middling: "x".repeat(900_000) };

    const saved = await client.save(thread, state, { summary: "Large." });
    const again = await client.save(thread, { ...state, small: false });

    const record = await client.load(thread, { checkpointId: saved.checkpointId });
    expect(record.state).toEqual(state);
    const replayed = await all(client.replay(thread));
    expect(replayed.map((one) => one.state["small"])).toEqual([true, false]);
    expect(replayed[1]?.state["text"] === text).toBe(true);
    expect(replayed[1]?.checkpointId).toBe(again.checkpointId);
  });

  test("every character of Unicode is kept", async () => {
    const thread = `${newThread()} Ünïcode/‮ 𝔘 \u0001 'quoted' %20`;
    const state = { "clé 🐘": "café ‮ \u0000", __proto__x: 1, ["__proto__"]: { a: 1 } };

    await client.save(thread, state, { summary: "Grüße aus Köln – 你好." });

    const record = await client.load(thread);
    expect(JSON.stringify(record.state)).toBe(JSON.stringify(state));
    expect(record.summary).toBe("Grüße aus Köln – 你好.");
    expect(record.threadId).toBe(thread);
  });

  test("what another framework saved is shown as JSON", async () => {
    const thread = newThread();
    const data = Buffer.from("81a3626967cf7fffffffffffffff", "hex"); // {"big": 2^63 - 1} as msgpack
    await client.raw.checkpoints.saveCheckpoint({
      checkpoint: {
        ref: { threadId: thread },
        state: {
          schemaVersion: 4,
          channels: [
            {
              name: "packed",
              version: { kind: { case: "integer", value: 1n } },
              content: { case: "value", value: { type: "msgpack", data } },
            },
          ],
        },
      },
    });

    const record = await client.load(thread);
    const shown = await client.load(thread, { view: "json" });

    expect(() => record.state).toThrow(UnreadableValue);
    expect(Buffer.from(record.channels.get("packed")?.data ?? [])).toEqual(data);
    expect(shown.state).toEqual({ packed: { big: { $int: "9223372036854775807" } } });
  });

  test("lists are newest first, bounded and filtered", async () => {
    const thread = newThread();
    const one = await client.save(thread, { n: 1 }, { summary: "One.", metadata: { by: "a" } });
    await client.save(thread, { n: 2 }, { summary: "Two.", label: "kept" });

    const summaries = async (options: Parameters<Client["list"]>[1]) =>
      (await all(client.list(thread, options))).map((one) => one.summary);

    expect(await summaries({})).toEqual(["Two.", "One."]);
    expect(await summaries({ limit: 1 })).toEqual(["Two."]);
    expect(await summaries({ limit: 0 })).toEqual([]);
    expect(await summaries({ metadata: { by: "a" } })).toEqual(["One."]);
    expect(await summaries({ label: "kept" })).toEqual(["Two."]);
    expect(await summaries({ checkpointId: one.checkpointId })).toEqual(["One."]);
    expect(await all(client.list("no such thread"))).toEqual([]);
  });
});

describe("search", () => {
  test("finds pointers by words and by vectors, with filters", async () => {
    const thread = newThread();
    const options = { summary: "The zebrafinch sang.", metadata: { outcome: "success" } };
    const { checkpointId } = await client.save(thread, { a: 1 }, { ...options, vector: [0.5, 1] });

    const found = await client.search("zebrafinch", { filter: { outcome: "success" } });
    const near = await client.search(new Float32Array([0.5, 1]), { threadId: thread, limit: 1 });
    const none = await client.search("zebrafinch", { filter: { outcome: "failure" } });

    expect(found.results).toMatchObject([{ threadId: thread, checkpointId, ...options }]);
    expect(found).toMatchObject({ mode: "lexical", metric: "bm25" });
    expect(near.results[0]).toMatchObject({ checkpointId });
    expect(near).toMatchObject({ mode: "vector", metric: "cosine" });
    expect(none.results).toEqual([]);
  });

  test("warns of text that was cut before it was indexed", async () => {
    const thread = newThread();
    const plan = `begin with the walrus${" and then".repeat(2000)} end with the puffin`;
    await client.save(thread, { current_plan: plan });

    const missed = await client.search("walrus", { threadId: thread });
    const found = await client.search("puffin", { threadId: thread });

    expect(missed.results).toEqual([]);
    expect(missed.warnings).toMatchObject([{ kind: "text_truncated" }]);
    expect(found.results).toMatchObject([{ threadId: thread, truncated: true }]);
    expect(found.warnings).toEqual([]);
  });
});

describe("the server", () => {
  test("reports what it is and the state of its archive", async () => {
    const thread = newThread();
    await client.save(thread, { a: 1 });

    const flushed = await client.flush();
    const status = await client.status();
    const info = await client.info();

    expect(flushed.certifiedCheckpoints).toBeGreaterThan(0n);
    expect(status.backlogCheckpoints).toBe(0n);
    expect(status.catalog).toEqual(flushed.catalog);
    expect(info.methods).toContain("tuskpoint.v1.CheckpointService/SaveCheckpoint");
    expect(info.limits?.maxUnaryBytes).toBe(4n * 1024n * 1024n);
    expect((await client.load(thread, { source: "blob" })).state).toEqual({ a: 1 });
    const certified = await client.save(thread, { a: 2 }, { durability: "certified" });
    expect(certified.durability).toBe("certified");
  });
});
