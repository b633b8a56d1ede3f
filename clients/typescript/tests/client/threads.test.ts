/** Threads: origins, interrupts, hand-offs and snapshots, against a real server. */

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";

import {
  AlreadyExists,
  Client,
  HashMismatch,
  InvalidDescriptor,
  InvalidRequest,
  NotFound,
  PreconditionFailed,
  type AdoptProgress,
  type CheckpointVerdict,
  type ThreadFilter,
} from "../../src/index.js";
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

/** Save several checkpoints of a thread; return their IDs. */
async function grow(threadId: string, count: number, runId = ""): Promise<string[]> {
  const ids: string[] = [];
  for (let n = 1; n <= count; n += 1) {
    const metadata = runId === "" ? undefined : { run_id: runId };
    const { checkpointId } = await client.save(threadId, { n, same: true }, { metadata });
    ids.push(checkpointId);
  }
  return ids;
}

test("a history is oldest first, and none of a thread that does not exist", async () => {
  const ids = await grow("history", 3);

  const entries = await all(client.history("history"));
  expect(entries.map((one) => one.checkpointId)).toEqual(ids);
  expect(entries.map((one) => one.state)).toEqual([{}, {}, {}]);
  const [first] = await all(client.history("history", { view: "full" }));
  expect(first?.state).toEqual({ n: 1, same: true });
  expect(await all(client.history("no such thread"))).toEqual([]);
});

test("retention and search are set, and cleared", async () => {
  await grow("kept", 1);
  await client.setRetention("kept", 86_400_000);
  await client.setSearchable("kept", false);
  expect(await client.getThread("kept")).toMatchObject({
    retentionMs: 86_400_000,
    searchable: false,
  });

  await client.setRetention("kept", undefined);
  await client.setSearchable("kept", true);
  expect(await client.getThread("kept")).toMatchObject({
    retentionMs: undefined,
    searchable: true,
  });
  await expect(client.setRetention("kept", 1_500)).rejects.toThrow(InvalidRequest);
  await expect(client.setRetention("no such thread", 1_000)).rejects.toThrow(NotFound);
  await expect(client.setSearchable("no such thread", true)).rejects.toThrow(NotFound);
});

test("threads are copied, pruned, and deleted by run", async () => {
  const ids = await grow("copied", 3, "one");
  expect(await client.copy("copied", "copy")).toBe(3n);
  await expect(client.copy("copied", "copy")).rejects.toThrow(AlreadyExists);

  expect(await client.prune(["copy", "no such thread"])).toBe(2n);
  expect((await all(client.list("copy"))).map((one) => one.checkpointId)).toEqual(ids.slice(2));
  expect(await client.prune("copy", { keep: "nothing" })).toBe(1n);
  expect(await all(client.list("copy"))).toEqual([]);
  // The client's memory of the thread is gone too: the next save has no parent.
  await client.save("copy", { n: 9, same: true });
  expect((await client.load("copy")).parentCheckpointId).toBe("");

  await grow("other", 1, "two");
  expect(await client.deleteRuns(["one", "no such run"])).toBe(3n);
  expect(await all(client.list("copied"))).toEqual([]);
  expect(await all(client.list("other"))).toHaveLength(1);
});

test("a lineage names what a thread came from, and what came from it", async () => {
  const [first = ""] = await grow("origin", 2);
  await client.fork("origin", { checkpointId: first, newThreadId: "fork" });
  await client.rollback("origin", first);

  const { ancestors } = await client.lineage("fork");
  expect(ancestors).toMatchObject([
    {
      kind: "fork",
      origin: { threadId: "origin", checkpointNs: "", checkpointId: first },
      result: { threadId: "fork", checkpointId: first },
      created: expect.any(Date),
    },
  ]);
  const { descendants, truncated } = await client.lineage("origin");
  expect(descendants.map((one) => one.kind).sort()).toEqual(["fork", "rollback"]);
  expect(truncated).toBe(false);
  await expect(client.lineage("no such thread")).rejects.toThrow(NotFound);
});

test("a comparison names each change, and no more than are asked for", async () => {
  const { checkpointId: first } = await client.save("compared", { a: 1, b: { c: [1, 2] }, d: 1 });
  const { checkpointId: second } = await client.save("compared", { a: 1, b: { c: [1, 3] }, e: 2 });

  const { changes, truncated } = await client.diff("compared", first);
  expect(changes).toEqual([
    { kind: "changed", channel: "b", path: "/c/1", fromJson: "2", toJson: "3" },
    { kind: "removed", channel: "d", path: "", fromJson: "1", toJson: undefined },
    { kind: "added", channel: "e", path: "", fromJson: undefined, toJson: "2" },
  ]);
  expect(truncated).toBe(false);
  await client.fork("compared", { checkpointId: first, newThreadId: "compared-fork" });
  const options = { toThreadId: "compared-fork", toCheckpointId: first, maxChanges: 1 };
  expect(await client.diff("compared", second, options)).toMatchObject({ truncated: true });
  await expect(client.diff("compared", first, { maxChanges: -1 })).rejects.toThrow(InvalidRequest);
  await expect(client.diff("compared", "no such checkpoint")).rejects.toThrow(NotFound);
});

test("a verification reads what is stored; the manifest lists it", async () => {
  const ids = await grow("verified", 2);
  expect(await client.storeManifest("verified")).toBeUndefined();
  await client.flush();

  const verdicts: CheckpointVerdict[] = [];
  const onVerdict = (one: CheckpointVerdict) => verdicts.push(one);
  const verification = await client.verify("verified", { onVerdict });
  expect(verification).toMatchObject({ ok: true, passed: 2n, failed: 0n, failures: [] });
  expect(verdicts.map((one) => [one.verdict, one.checkpointId]).sort()).toEqual(
    ids.map((id) => ["pass", id]),
  );
  expect(verdicts[0]?.actualSha256).toBe(verdicts[0]?.location?.sha256);

  const entries = await all(client.manifest("verified"));
  expect(entries.map((one) => one.checkpointId)).toEqual(ids);
  expect(entries[1]).toMatchObject({
    parentCheckpointId: ids[0],
    stateSha256: expect.stringMatching(/^[0-9a-f]{64}$/),
  });
  expect(await client.storeManifest("verified")).toMatchObject({ sha256: expect.any(String) });
  await expect(client.verify("no such thread")).rejects.toThrow(NotFound);
  await expect(all(client.manifest("no such thread"))).rejects.toThrow(NotFound);
});

test("a snapshot is taken, found, restored as new threads and in place, and deleted", async () => {
  const [one = ""] = await grow("member-1", 1);
  const [other = ""] = await grow("member-2", 1);
  const place = { sessionId: "session", hostname: "host", workingDirectory: "/work" };
  const taken = await client.createSnapshot(["member-1", "member-2"], {
    ...place,
    metadata: { why: "before" },
  });
  expect(taken).toMatchObject({ ...place, metadata: { why: "before" }, created: expect.any(Date) });
  expect(taken.members).toEqual([
    { threadId: "member-1", checkpointNs: "", checkpointId: one },
    { threadId: "member-2", checkpointNs: "", checkpointId: other },
  ]);
  expect(await client.getSnapshot(taken.snapshotId)).toEqual(taken);
  const later = await client.createSnapshot("member-1");
  expect(await client.latestSnapshot(place)).toEqual(taken);
  expect(await client.latestSnapshot()).toEqual(later);
  expect(await all(client.listSnapshots())).toEqual([later, taken]);
  expect(await all(client.listSnapshots({ hostname: "host" }))).toEqual([taken]);

  const restored = await client.restoreSnapshot(taken.snapshotId);
  expect(restored.map((ref) => ref.checkpointId)).toEqual([one, other]);
  expect((await client.load(restored[0]?.threadId ?? "")).state).toEqual({ n: 1, same: true });
  await client.save("member-1", { n: 2 });
  await client.restoreSnapshot(taken.snapshotId, { mode: "rollback" });
  expect((await client.load("member-1")).state).toEqual({ n: 1, same: true });
  // The client remembers a checkpoint that is no longer the latest: the next save follows the
  // latest.
  const { checkpointId } = await client.load("member-1");
  await client.save("member-1", { n: 3 });
  expect((await client.load("member-1")).parentCheckpointId).toBe(checkpointId);

  expect(await client.deleteSnapshot(taken.snapshotId)).toBe(true);
  expect(await client.deleteSnapshot(taken.snapshotId)).toBe(false);
  await expect(client.getSnapshot(taken.snapshotId)).rejects.toThrow(NotFound);
  await expect(client.createSnapshot("no such thread")).rejects.toThrow(NotFound);
});

test("threads are forked, rolled back, labelled, listed and deleted", async () => {
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
  const names = async (filter: ThreadFilter) =>
    (await all(client.listThreads({ agentId: "lister", ...filter }))).map((one) => one.threadId);
  expect(await names({ state: "idle" })).toEqual([thread, `${thread}-fork`]);
  expect(await names({ latestFirst: true })).toEqual([thread, `${thread}-fork`]);
  await client.setLabel(`${thread}-fork`, "good");
  expect(await names({ latestFirst: true })).toEqual([`${thread}-fork`, thread]);
  const [begun, end] = [new Date(Date.now() - 3_600_000), new Date("9999-01-01")];
  expect(await names({ changedAfter: begun, changedBefore: end })).toHaveLength(2);
  expect(await names({ changedAfter: end })).toEqual([]);
  expect(await names({ changedBefore: begun })).toEqual([]);
  expect(await client.delete(thread)).toBe(3n);
  expect(await client.delete(thread)).toBe(0n);
  // The client's memory of the thread is gone too: the next save has no parent.
  await client.save(thread, { n: 9 });
  expect((await client.getThread(thread)).incarnation).toBe(2n);
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

  test("the only one is answered without a task, and again until the graph continues", async () => {
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
    expect((await failure(client.answer(threadId, 1))).message).toContain(
      "choose one with interruptId: 'a', 'b'",
    );
    const unknown = await failure(client.answer(threadId, 1, { interruptId: "c" }));
    expect(unknown.message).toContain("does not wait for an answer to 'c'");
    await client.answer(threadId, 1, { interruptId: "a" });
    await client.answer(threadId, { two: 2 }, { interruptId: "b" });
    expect(await resumes(threadId)).toEqual([["task-1", -4, [1]]]);
    expect(await resumes(threadId, checkpointNs)).toEqual([["task-4", -4, [{ two: 2 }]]]);
    const again = await failure(client.answer(threadId, 2, { interruptId: "a" }));
    expect(again.message).toContain("has an answer to 'a' already");
  });
});

/** A descriptor that passes the client's checks: only a server can refuse it. */
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
      "signer",
      "signature",
    ]);
    expect(adoption).toMatchObject({
      adoptedFrom: `${thread}:${checkpointId}`,
      newThreadId: `${thread}-theirs`,
      checkpointId,
      verified: true,
      signer: (await client.info()).signers[0],
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
    const changed = { ...descriptor, blob_sha256: "0".repeat(64) };
    const unsigned = await failure(client.adopt(changed, `${thread}-forged`));
    expect(unsigned.reason).toBe("SIGNATURE_REFUSED");
    const others = { requireSigners: ["ab".repeat(32)] };
    const required = await failure(client.adopt(descriptor, `${thread}-forged`, others));
    expect(required.reason).toBe("SIGNATURE_REFUSED");
    const { signer: _signer, signature: _signature, ...forged } = changed;
    const refused = await failure(client.adopt(forged, `${thread}-forged`));
    expect(refused).toBeInstanceOf(HashMismatch);
    expect((refused as HashMismatch).actual).toBe(descriptor.blob_sha256);
    await expect(client.load(`${thread}-forged`)).rejects.toThrow(NotFound);
  });

  test("are sealed to a recipient, whose server opens them", async () => {
    const directory = await mkdtemp(join(tmpdir(), "tuskpoint-recipient-"));
    onTestFinished(() => rm(directory, { recursive: true }));
    const [keys, identity] = [join(directory, "keys"), join(directory, "identity")];
    await writeFile(keys, Buffer.alloc(32).toString("base64"), { mode: 0o600 });
    await writeFile(
      identity,
      "AGE-SECRET-KEY-1PJ7ZWZ8SLHD8M4K6GC7WF4SKEPJQQFEXC6FEXKJ45CRRRQLRWGPQAVDX8W",
      { mode: 0o600 },
    );
    const sealing = await TestServer.start("--key-file", keys, "--identity", identity);
    onTestFinished(() => sealing.remove());
    const sealed = new Client(sealing.target);
    onTestFinished(() => sealed.close());
    const thread = newThread();
    await sealed.save(thread, { a: 1 });
    const [recipient] = (await sealed.info()).recipients;

    const descriptor = await sealed.handoff(thread, { recipient });

    expect(descriptor.key).toBeUndefined();
    expect(Object.keys(descriptor).at(-1)).toBe("sealed_key");
    const { verified } = await sealed.adopt(JSON.stringify(descriptor), `${thread}-theirs`);
    expect(verified).toBe(true);
    const changed = { ...descriptor, sealed_key: "AAAA" };
    const refused = await failure(sealed.adopt(changed, `${thread}-changed`));
    expect(refused.reason).toBe("KEY_MISSING");
    await client.save(thread, { a: 1 });
    const unsealed = await failure(client.handoff(thread, { recipient }));
    expect(unsealed).toBeInstanceOf(PreconditionFailed);
    expect(unsealed.reason).toBe("SEALING_UNAVAILABLE");
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
    ["no base64", { sealed_key: "AAA" }, "descriptor.sealed_key"],
    ["too much base64", { sealed_key: "AAAA".repeat(1025) }, "descriptor.sealed_key"],
  ])("%s is not a descriptor, and is refused before anything is sent", async (_, change, field) => {
    const good = JSON.parse(GOOD);
    const given = typeof change === "string" ? change : JSON.stringify({ ...good, ...change });
    const unreached = new Client("127.0.0.1:1");

    const error = await failure(unreached.adopt(given, "t2"));

    expect(error).toBeInstanceOf(InvalidDescriptor);
    expect(error.metadata).toEqual({ field });
    unreached.close();
  });
});

describe("options and closing", () => {
  test("something else in the place of options is refused", async () => {
    const thread = newThread();
    const [first = ""] = await grow(thread, 2);
    const id = first as unknown as object;
    const calls: (() => Promise<unknown>)[] = [
      () => client.load(thread, id),
      () => client.save(thread, { n: 3 }, id),
      () => client.setLabel(thread, "x", id),
      () => client.fork(thread, id),
      () => client.handoff(thread, id),
      () => client.interrupts(thread, id),
      () => client.answer(thread, "yes", id),
      () => client.prune(thread, id),
      () => client.search("n", id),
      () => all(client.list(thread, id)),
      () => all(client.history(thread, id)),
      () => all(client.replay(thread, id)),
      () => all(client.watch(thread, id)),
      () => all(client.listThreads(id)),
      () => all(client.listSnapshots(id)),
      () => client.load(thread, null as unknown as object),
    ];
    for (const call of calls) {
      const error = await failure(call());
      expect(error).toBeInstanceOf(InvalidRequest);
      expect(error.metadata).toEqual({ field: "options" });
    }
    expect((await failure(client.load(thread, id))).message).toContain(`the text '${first}'`);
    expect((await client.getThread(thread)).checkpointCount).toBe(2n);
  });

  test("closing ends a listing between two of its entries", async () => {
    const threads = [newThread(), newThread()];
    for (const thread of threads) {
      await client.save(thread, {});
      await client.createSnapshot(thread);
    }
    for (const listing of [
      (closing: Client) => closing.listThreads(),
      (closing: Client) => closing.listSnapshots(),
    ]) {
      const closing = new Client(server.target);
      const listed = listing(closing);
      expect((await listed.next()).done).toBe(false);
      closing.close();
      expect((await failure(listed.next())).message).toContain("this client is closed");
    }
  });
});
