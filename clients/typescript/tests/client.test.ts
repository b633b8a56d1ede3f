/** Saving, loading and the calls around them, against a real server. */

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

import {
  AlreadyExists,
  Client,
  Conflict,
  DeadlineExceeded,
  HashMismatch,
  InvalidDescriptor,
  InvalidRequest,
  NotFound,
  PreconditionFailed,
  type TuskPointError,
  Unavailable,
  UnreadableValue,
  type AdoptProgress,
} from "../src/index.js";
import { all, holdTime, TestServer } from "./kit.js";

let server: TestServer;
let client: Client;
let threads = 0;

/** Return the ID of a thread that no other test has. */
function newThread(): string {
  threads += 1;
  return `thread-${threads}`;
}

/** Return what a call fails with. */
async function failure(call: Promise<unknown>): Promise<TuskPointError> {
  return await call.then(
    () => expect.fail("the call succeeded"),
    (error: unknown) => error as TuskPointError,
  );
}

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

  test("a thread that counts with integers goes on with integers", async () => {
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
    await client.save(thread, { n: 1 }, { summary: "One.", metadata: { by: "a" } });
    await client.save(thread, { n: 2 }, { summary: "Two.", label: "kept" });

    const summaries = async (options: Parameters<Client["list"]>[1]) =>
      (await all(client.list(thread, options))).map((one) => one.summary);

    expect(await summaries({})).toEqual(["Two.", "One."]);
    expect(await summaries({ limit: 1 })).toEqual(["Two."]);
    expect(await summaries({ limit: 0 })).toEqual([]);
    expect(await summaries({ metadata: { by: "a" } })).toEqual(["One."]);
    expect(await summaries({ label: "kept" })).toEqual(["Two."]);
    expect(await all(client.list("no such thread"))).toEqual([]);
  });
});

describe("threads", () => {
  test("are forked, rolled back, labelled, listed and deleted", async () => {
    const thread = newThread();
    const first = await client.save(thread, { n: 1 }, { agentId: "lister" });
    const second = await client.save(thread, { n: 2 });

    const fork = await client.fork(thread, { newThreadId: `${thread}-fork` });
    const back = await client.rollback(thread, first.checkpointId, {
      expectedHead: second.checkpointId,
    });
    const labelled = await client.setLabel(thread, "good");

    expect(fork).toEqual({
      newThreadId: `${thread}-fork`,
      checkpointId: second.checkpointId,
      forkedFrom: `${thread}:${second.checkpointId}`,
    });
    expect(back.rolledBackFrom).toBe(`${thread}:${first.checkpointId}`);
    expect(labelled).toBe(back.checkpointId);
    const record = await client.load(thread);
    expect(record.state).toEqual({ n: 1 });
    expect(record.lineage.rolledBackFrom).toBe(back.rolledBackFrom);
    const listed = await all(client.listThreads({ agentId: "lister", state: "idle" }));
    expect(listed.map((one) => one.threadId)).toEqual([thread, `${thread}-fork`]);
    expect(await client.delete(thread)).toBe(3n);
    expect(await client.delete(thread)).toBe(0n);
    // What this client remembered of the thread is gone too: the next save begins it anew.
    await client.save(thread, { n: 9 });
    expect((await client.getThread(thread)).incarnation).toBe(2n);
  });
});

describe("interrupts", () => {
  /** Save pending writes, each as JSON. */
  async function write(
    ref: { threadId: string; checkpointId: string; checkpointNs?: string },
    ...writes: [taskId: string, channel: string, value: unknown, taskPath?: string][]
  ): Promise<void> {
    await client.raw.checkpoints.saveWrites({
      ref,
      writes: writes.map(([taskId, channel, value, taskPath = ""]) => ({
        taskId,
        taskPath,
        channel,
        content: {
          case: "value" as const,
          value: { type: "json", data: Buffer.from(JSON.stringify(value)) },
        },
      })),
    });
  }

  async function resumes(threadId: string, checkpointNs = ""): Promise<unknown[]> {
    const { writes } = await client.load(threadId, { checkpointNs });
    return writes
      .filter((one) => one.channel === "__resume__")
      .map((one) => [one.taskId, one.idx, one.value]);
  }

  test("the only one is answered without a task, and again until the graph goes on", async () => {
    const threadId = newThread();
    const { checkpointId } = await client.save(threadId, { draft: "v1" });
    const refused = await failure(client.answer(threadId, "yes"));
    await write({ threadId, checkpointId }, [
      "task-1",
      "__interrupt__",
      [{ value: "Go?", id: "7" }],
    ]);

    const interrupts = await client.interrupts(threadId);
    await client.answer(threadId, "no");
    const answered = await client.answer(threadId, { publish: true, note: "Grüße" });

    expect(refused).toBeInstanceOf(PreconditionFailed);
    expect(refused.status).toBe("FAILED_PRECONDITION");
    expect(refused.message).toContain("waits for no answer");
    expect(interrupts).toEqual([
      { checkpointId, taskId: "task-1", interruptId: "7", value: "Go?" },
    ]);
    expect(answered).toBe(checkpointId);
    expect(await resumes(threadId)).toEqual([
      ["00000000-0000-0000-0000-000000000000", -4, { publish: true, note: "Grüße" }],
    ]);
    await expect(client.answer(threadId, null)).rejects.toThrow(InvalidRequest);
  });

  test("one of several is named, and answered where it is asked", async () => {
    const threadId = newThread();
    const { checkpointId } = await client.save(threadId, { n: 1 });
    const checkpointNs = "child:task-2";
    const child = await client.save(threadId, { n: 2 }, { checkpointNs });
    const asked = (id: string) => [{ value: id, id }];
    await write(
      { threadId, checkpointId },
      ["task-1", "__interrupt__", asked("a")],
      ["task-2", "__interrupt__", asked("b")],
      ["task-3", "__interrupt__", asked("c")],
      ["task-3", "out", "it has ended"],
    );
    const inner = { threadId, checkpointNs, checkpointId: child.checkpointId };
    await write(inner, ["task-4", "__interrupt__", asked("b")]);

    expect((await client.interrupts(threadId)).map((one) => one.value)).toEqual(["a", "b"]);
    expect((await failure(client.answer(threadId, 1))).message).toContain("one of 'a', 'b'");
    const unknown = await failure(client.answer(threadId, 1, { interruptId: "c" }));
    expect(unknown.message).toContain("does not wait for an answer to 'c'");
    await client.answer(threadId, 1, { interruptId: "a" });
    await client.answer(threadId, { two: 2 }, { interruptId: "b" });
    expect(await resumes(threadId)).toEqual([["task-1", -4, [1]]]);
    expect(await resumes(threadId, checkpointNs)).toEqual([["task-4", -4, [{ two: 2 }]]]);
    const again = await failure(client.answer(threadId, 2, { interruptId: "a" }));
    expect(again.message).toContain("has an answer of the task that asks 'a' already");
  });
});

/** A descriptor that only a server can refuse. */
const GOOD = JSON.stringify({
  source: "t:c",
  thread_id: "t",
  checkpoint_id: "c",
  blob_id: "b",
  blob_sha256: "a".repeat(64),
  to_agent: '\\ says "go"',
  summary: "",
});

describe("hand-offs", () => {
  test("are adopted with progress, once, and only with their hash", async () => {
    const thread = newThread();
    const { checkpointId } = await client.save(
      thread,
      { plan: ["écrire"] },
      { summary: "Planned." },
    );
    const descriptor = await client.handoff(thread, { toAgent: "writer" });
    const progress: AdoptProgress[] = [];

    const adoption = await client.adopt(JSON.stringify(descriptor), `${thread}-theirs`, {
      onProgress: (one) => progress.push(one),
    });

    expect(Object.keys(descriptor)).toEqual([
      "source",
      "thread_id",
      "checkpoint_id",
      "blob_id",
      "blob_sha256",
      "to_agent",
      "summary",
    ]);
    expect(adoption).toMatchObject({
      adoptedFrom: `${thread}:${checkpointId}`,
      newThreadId: `${thread}-theirs`,
      checkpointId,
      verified: true,
    });
    expect(progress.map((one) => one.stage)).toEqual([
      "fetching",
      "fetched",
      "verified",
      "adopted",
    ]);
    expect(progress.at(-1)?.fetchedBytes).toBeGreaterThan(0n);
    const theirs = await client.load(adoption.newThreadId);
    expect(theirs.state).toEqual({ plan: ["écrire"] });
    expect(theirs.lineage.adoptedFrom).toBe(descriptor.source);

    const again = await failure(client.adopt(descriptor, adoption.newThreadId));
    expect(again).toBeInstanceOf(AlreadyExists);
    expect(again.reason).toBe("THREAD_EXISTS");
    const forged = { ...descriptor, blob_sha256: "0".repeat(64) };
    const refused = await failure(client.adopt(forged, `${thread}-forged`));
    expect(refused).toBeInstanceOf(HashMismatch);
    expect((refused as HashMismatch).actual).toBe(descriptor.blob_sha256);
    await expect(client.load(`${thread}-forged`)).rejects.toThrow(NotFound);
  });

  test.each([
    ["no JSON", "{", "descriptor"],
    ["a list", "[]", "descriptor"],
    ["a key that comes twice", `{"source":1,${GOOD.slice(1)}`, "descriptor"],
    ["a key too few", { summary: undefined }, "descriptor.summary"],
    ["a key too many", { more: "" }, "descriptor.more"],
    ["a number", { blob_id: 7 }, "descriptor.blob_id"],
    ["an empty text", { blob_id: "" }, "descriptor.blob_id"],
    ["upper-case hex", { blob_sha256: "A".repeat(64) }, "descriptor.blob_sha256"],
    ["another source", { source: "t:d" }, "descriptor.source"],
  ])("%s is no descriptor, and is refused before anything is sent", async (_, change, field) => {
    const good = JSON.parse(GOOD);
    const given = typeof change === "string" ? change : JSON.stringify({ ...good, ...change });
    const unreached = new Client("127.0.0.1:1");

    const error = await failure(unreached.adopt(given, "t2"));

    expect(error).toBeInstanceOf(InvalidDescriptor);
    expect(error.metadata).toEqual({ field });
    unreached.close();
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
});

describe("the server", () => {
  test("reports what it is and how its archive stands", async () => {
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

describe("errors", () => {
  test("carry status, reason, metadata and fields", async () => {
    const absent = await failure(client.load("nowhere"));
    const unknown = await failure(client.getThread("nowhere"));
    const empty = await failure(client.raw.checkpoints.saveCheckpoint({ checkpoint: {} }));
    const many = await failure(client.search("plan", { limit: 100_000 }));
    const early = await failure(
      client.save("early", { a: 1 }).then(() => client.load("early", { source: "blob" })),
    );

    expect(absent).toBeInstanceOf(NotFound);
    expect(absent).toMatchObject({
      name: "NotFound",
      status: "NOT_FOUND",
      reason: "CHECKPOINT_NOT_FOUND",
      metadata: { thread_id: "nowhere" },
    });
    expect(unknown).toMatchObject({ reason: "THREAD_NOT_FOUND", status: "NOT_FOUND" });
    expect(empty).toBeInstanceOf(InvalidRequest);
    expect(empty.violations.map((one) => one.field)).toContain("checkpoint.ref.thread_id");
    expect(empty.message).toContain("checkpoint.ref.thread_id: ");
    expect(many.violations.map((one) => one.field)).toEqual(["limit"]);
    expect(early).toBeInstanceOf(PreconditionFailed);
    expect(early.reason).toBe("NOT_CERTIFIED");
  });

  test("report what cannot be sent before it is sent", async () => {
    const unreached = new Client("127.0.0.1:1");
    const refusals: [() => Promise<unknown>, string][] = [
      [() => unreached.save("t", { a: [undefined] }), "state.a[0]"],
      [() => unreached.save("t", { "": 1 }), "state"],
      [() => unreached.save("t", [] as unknown as Record<string, unknown>), "state"],
      [() => unreached.save("t", {}, { metadata: { n: Number.NaN } }), "metadata.n"],
      [() => unreached.save("\ud800", {}), "threadId"],
      [() => unreached.save("t", {}, { vector: [1e300] }), "vector"],
      [() => unreached.load("t", { view: "all" as "full" }), "view"],
      [() => unreached.load("t", { checkpointId: 7 as unknown as string }), "checkpointId"],
      [() => unreached.search("a", { limit: 0 }), "limit"],
      [() => unreached.list("t", { limit: -1 }).next(), "limit"],
      [() => unreached.watch("t", { progressMs: 5 }).next(), "progressMs"],
      [() => unreached.watch("t", { kinds: [] }).next(), "kinds"],
      [() => unreached.info({ timeoutMs: 0 }), "timeoutMs"],
    ];

    for (const [call, field] of refusals) {
      const error = await failure(call());
      expect(error).toBeInstanceOf(InvalidRequest);
      expect(error).toMatchObject({ reason: "INVALID_FIELD", metadata: { field } });
    }
    const number = await failure(
      client.raw.search.searchCheckpoints({ limit: -1, query: { case: "text", value: "a" } }),
    );
    expect(number).toBeInstanceOf(InvalidRequest);
    unreached.close();
  });

  test("a deadline and a signal end a call that waits", async () => {
    const pass = holdTime();
    const thread = newThread();
    await client.save(thread, { a: 1 });
    const late = client.watch(thread, { timeoutMs: 10_000 });
    await late.next();
    const controller = new AbortController();
    const aborted = client.watch(thread, { signal: controller.signal });
    await aborted.next();
    const waiting = aborted.next();
    const reason = new Error("enough");
    controller.abort(reason);

    await expect(waiting).rejects.toBe(reason);
    const expired = failure(late.next());
    pass(10_000);
    const error = await expired;
    expect(error).toBeInstanceOf(DeadlineExceeded);
    expect(error.status).toBe("DEADLINE_EXCEEDED");
    await expect(client.info({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  });

  test("calls that end early leave no timer behind, and one signal ends many", async () => {
    const timers = () => process.getActiveResourcesInfo().filter((one) => one === "Timeout").length;
    const warnings: Error[] = [];
    const listen = (warning: Error) => warnings.push(warning);
    process.on("warning", listen);
    const thread = newThread();
    await client.save(thread, { a: 1 });
    await client.save(thread, { a: 2 });
    const before = timers();
    const controller = new AbortController();
    const { signal } = controller;
    const watching = Array.from({ length: 12 }, () => client.watch(thread, { signal }));
    await Promise.all(watching.map((one) => one.next()));
    for await (const _ of client.list(thread, { view: "full" })) {
      break;
    }
    controller.abort(new Error("enough"));
    await Promise.allSettled(watching.map((one) => one.next()));
    for (const one of watching) {
      await expect(one.next()).resolves.toEqual({ done: true, value: undefined });
    }

    expect(timers()).toBeLessThanOrEqual(before);
    expect(warnings).toEqual([]);
    process.off("warning", listen);
  });

  test("a connection keeps the process alive only while it has calls", async () => {
    const own = new Client(server.target);
    const sockets = () =>
      process.getActiveResourcesInfo().filter((one) => one === "TCPSocketWrap").length;
    await vi.waitFor(() => expect(sockets()).toBe(0), { timeout: 10_000 });
    const thread = newThread();
    await own.save(thread, { a: 1 });
    await own.save(thread, { text: "x".repeat(300_000) });
    await own.info();
    await vi.waitFor(() => expect(sockets()).toBe(0), { timeout: 10_000 });

    const watching = own.watch(thread);
    await watching.next();
    expect(sockets()).toBe(1);
    await watching.return();
    await vi.waitFor(() => expect(sockets()).toBe(0), { timeout: 10_000 });
    own.close();
  });

  test("where nothing listens the call is Unavailable once its time is up", async () => {
    const unreached = new Client({ target: "127.0.0.1:1", timeoutMs: 2_000 });
    const error = await failure(unreached.info());

    expect(error).toBeInstanceOf(Unavailable);
    expect(error).toMatchObject({ status: "UNAVAILABLE", reason: "" });
    expect(error.message).toContain("127.0.0.1:1");
    unreached.close();
  });

  test("closing ends what is under way and refuses what comes after", async () => {
    const thread = newThread();
    const closing = new Client(server.target);
    await closing.save(thread, { a: 1 });
    const watch = closing.watch(thread);
    await watch.next();
    const waiting = failure(watch.next());

    closing.close();
    closing.close();

    expect(await waiting).toMatchObject({ status: "FAILED_PRECONDITION", reason: "" });
    const after = await failure(closing.load(thread));
    expect(after.message).toContain("closed");
  });
});
