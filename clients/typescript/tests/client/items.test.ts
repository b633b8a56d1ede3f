/** Items, effects, receipts, previews of retention and the audit trail, against a real server. */

import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";

import { TrailBatchSchema, type TrailBatch } from "../../src/gen/tuskpoint/v1/admin_service_pb.js";
import {
  Client,
  DataLoss,
  EffectInputChanged,
  EffectNotDone,
  EffectNotUnknown,
  EffectRefused,
  EffectRunning,
  EffectUnknown,
  inputDigest,
  InvalidRequest,
  NotDone,
  NotFound,
  PreconditionFailed,
  Refused,
} from "../../src/index.js";
import { TrailReader } from "../../src/messages/trail.js";
import { all, failure, newThread, TestServer } from "../kit.js";

/** Inputs and their digests; JavaScript rounds an integer above 2**53. */
const VECTORS = (
  JSON.parse(
    readFileSync(new URL("../../../../tests/interop/input_digests.json", import.meta.url), "utf8"),
  ) as { input: string; sha256: string; exact_integers?: true }[]
).filter((vector) => !vector.exact_integers);

let server: TestServer;
let client: Client;

beforeAll(async () => {
  server = await TestServer.start("--trail", "changes");
  client = new Client(server.target);
});

afterAll(async () => {
  client.close();
  await server.remove();
});

test("items are put, read, found, listed and deleted", async () => {
  const ada = ["users", "ada"];
  await client.putItems([
    { namespace: ada, key: "diet", value: { text: "rye bread", n: 3 }, ttlMs: 60_000 },
    { namespace: ada, key: "pets", value: { n: 1 }, index: false },
    { namespace: ["users", "bob"], key: "diet", value: { n: 2 }, index: ["n"] },
  ]);
  const keys = ["diet", "missing", "pets"].map((key) => ({ namespace: ada, key }));
  const [diet, missing, pets] = await client.getItems(keys, { refreshTtl: true });
  expect(diet).toMatchObject({ namespace: ada, key: "diet", value: { text: "rye bread", n: 3 } });
  expect(diet?.expires?.getTime()).toBeGreaterThan(Date.now());
  expect(missing).toBeUndefined();
  expect(pets?.expires).toBeUndefined();
  expect(pets?.created).toBeInstanceOf(Date);

  const named = async (...search: Parameters<Client["searchItems"]>) =>
    (await client.searchItems(...search)).items.map(({ namespace, key }) => [...namespace, key]);
  expect(await named(ada)).toHaveLength(2);
  const atLeastTwo = { filter: { n: { $gte: 2 } } };
  expect(await named(["users"], atLeastTwo)).toHaveLength(2);
  const last = await named(["users"], { ...atLeastTwo, limit: 1, offset: 1 });
  expect(last).toEqual((await named(["users"], atLeastTwo)).slice(1));
  const { warnings } = await client.searchItems(["users"], { query: "what does she eat?" });
  expect(warnings).toHaveLength(1);
  expect(await client.listItemNamespaces()).toEqual([ada, ["users", "bob"]]);
  expect(await client.listItemNamespaces({ suffix: ["bob"] })).toEqual([["users", "bob"]]);
  expect(await client.listItemNamespaces({ prefix: ["users"], maxDepth: 1 })).toEqual([["users"]]);

  await client.putItems([{ namespace: ada, key: "diet" }]);
  expect(await client.getItems(keys.slice(0, 1))).toEqual([undefined]);
});

test("more items than a request takes are read and found", async () => {
  const keys = Array.from({ length: 1_100 }, (_, n) => ({ namespace: ["many"], key: `${n}` }));
  const changes = keys.map((key, n) => ({ ...key, value: { n } }));
  await client.putItems(changes.slice(0, 1_000));
  await client.putItems(changes.slice(1_000));
  const read = await client.getItems(keys);
  expect(read.map((item) => item?.value["n"])).toEqual(changes.map(({ value }) => value.n));
  expect((await client.searchItems(["many"], { limit: 1_050 })).items).toHaveLength(1_050);
});

test("an item or an option that cannot be used is refused before it is sent", async () => {
  const put = (change: object) => client.putItems([{ namespace: ["a"], key: "k", ...change }]);
  const calls: [string, Promise<unknown>][] = [
    ["namespace", put({ namespace: "users" })],
    ["value", put({ value: [1] })],
    ["value.n", put({ value: { n: 1n } })],
    ["ttlMs", put({ value: {}, ttlMs: 0 })],
    ["index", put({ value: {}, index: "text" })],
    ["limit", client.searchItems([], { limit: 0 })],
    ["offset", client.listItemNamespaces({ offset: -1 })],
    ["options", client.searchItems([], "query" as unknown as object)],
    ["options", client.listItemNamespaces("users" as unknown as object)],
    ["options", client.erase("t", "certified" as unknown as object)],
    ["options", client.previewRetention([], "t" as unknown as object)],
    ["rules[1].deleteAfterMs", client.previewRetention([{}, { deleteAfterMs: 1_500 }])],
    ["attemptTimeoutMs", client.beginEffect("t", "k", { attemptTimeoutMs: 10 })],
    ["input", client.effect("t", "k", { input: 1n }, () => null)],
    ["result", client.resolveEffect("t", "k", { attempt: 1, done: false, result: 1 })],
    ["states", all(client.listEffects("t", { states: "lost" as "done" }))],
    ["rules[0].keepLast", client.previewRetention([{ keepLast: -1 }])],
  ];
  for (const [field, call] of calls) {
    const error = await failure(call);
    expect(error).toBeInstanceOf(InvalidRequest);
    expect(error.metadata).toEqual({ field });
  }
});

describe("effects", () => {
  test("work is done once, and its result comes back", async () => {
    const threadId = newThread();
    const work = vi.fn(async (_: { idempotencyKey: string; attempt: number }) => ({ id: "ch_1" }));
    const options = { name: "charge", input: { amount: 5 } };
    for (const _ of [1, 2]) {
      expect(await client.effect(threadId, "charge", options, work)).toEqual({ id: "ch_1" });
    }
    const effect = await client.getEffect(threadId, "charge");
    const { idempotencyKey } = effect;
    expect(work.mock.calls).toEqual([[{ idempotencyKey, attempt: 1 }]]);
    expect(idempotencyKey).toMatch(/^[0-9a-f]{32}$/);
    expect(effect).toMatchObject({ state: "done", result: { id: "ch_1" }, name: "charge" });
    expect(effect.owner).toContain(`${process.pid}`);

    const changed = client.effect(threadId, "charge", { input: { amount: 6 } }, work);
    await expect(changed).rejects.toThrow(EffectInputChanged);
    expect(work).toHaveBeenCalledOnce();
    const bytes = await client.effect(threadId, "bytes", {}, () => new Uint8Array([0, 255]));
    expect([...bytes]).toEqual([0, 255]);
    expect(await client.effect(threadId, "void", {}, () => undefined)).toBeUndefined();
    const listed = await all(client.listEffects(threadId, { states: "done" }));
    expect(listed.map(({ key, result }) => [key, result])).toEqual([
      ["void", undefined],
      ["bytes", undefined],
      ["charge", undefined],
    ]);
    expect(await all(client.listEffects(threadId, { states: ["running", "failed"] }))).toEqual([]);
  });

  test("what the work throws decides whether the work may be done again", async () => {
    const threadId = newThread();
    const work = vi.fn((): unknown => "done");
    const attempt = (key: string) => client.effect(threadId, key, {}, work);
    const throwing = (error: Error) =>
      work.mockImplementationOnce(() => {
        throw error;
      });

    throwing(new NotDone("no route"));
    expect(await failure(attempt("retried"))).toBeInstanceOf(EffectNotDone);
    expect(await attempt("retried")).toBe("done");

    work.mockReturnValueOnce(new Refused("declined"));
    await expect(attempt("refused")).rejects.toThrow(EffectRefused);
    const refused = (await failure(attempt("refused"))) as EffectRefused;
    expect(refused).toBeInstanceOf(PreconditionFailed);
    expect(refused.effect).toMatchObject({ state: "failed", error: "declined" });

    const lost = new TypeError("fetch failed");
    throwing(lost);
    expect(await failure(attempt("lost"))).toBe(lost);
    expect((await failure(attempt("lost"))).message).toContain("(TypeError: fetch failed)");
    await expect(attempt("lost")).rejects.toThrow(EffectUnknown);
    expect(await client.effect(threadId, "lost", { onUnknown: "retry" }, work)).toBe("done");

    // A result that cannot be recorded does not repeat the work.
    work.mockReturnValueOnce({ n: 1n });
    await expect(attempt("unencodable")).rejects.toThrow(InvalidRequest);
    await expect(attempt("unencodable")).rejects.toThrow(EffectUnknown);
    expect(work).toHaveBeenCalledTimes(6);
  });

  test("an attempt elsewhere is waited for, and work that has begun reports", async () => {
    const threadId = newThread();
    const begun = await client.beginEffect(threadId, "mail");
    expect([begun.run, begun.state]).toEqual([true, "running"]);
    const again = (options: { waitMs?: number; signal?: AbortSignal }) =>
      client.effect(threadId, "mail", options, () => expect.fail("the work is done twice"));
    await expect(again({ waitMs: 0 })).rejects.toThrow(EffectRunning);
    const stopped = new AbortController();
    const waiting = again({ signal: stopped.signal });
    stopped.abort(new Error("stop"));
    await expect(waiting).rejects.toThrow("stop");
    const { idempotencyKey } = begun;
    const [result] = await Promise.all([
      again({}),
      client.completeEffect(threadId, "mail", { idempotencyKey, result: "sent" }),
    ]);
    expect(result).toBe("sent");

    const late = new AbortController();
    const done = client.effect(threadId, "late", { signal: late.signal }, () => {
      late.abort();
      return "done";
    });
    expect(await done).toBe("done");
  });

  test("an attempt under a lease is unknown once the lease has ended", async () => {
    const threadId = newThread();
    const begun = await client.withLease(threadId, {}, async ({ leaseId }) => {
      const effect = await client.beginEffect(threadId, "mail");
      expect(effect.leaseId).toBe(leaseId);
      return effect;
    });
    expect(begun.run).toBe(true);
    expect((await client.getEffect(threadId, "mail")).state).toBe("unknown");
  });

  test("an unknown effect is decided", async () => {
    const threadId = newThread();
    const { idempotencyKey, attempt } = await client.beginEffect(threadId, "mail");
    const decide = () =>
      client.resolveEffect(threadId, "mail", { attempt, done: true, resolvedBy: "ada" });
    await expect(decide()).rejects.toThrow(EffectNotUnknown);
    const outcome = "unknown" as const;
    await client.failEffect(threadId, "mail", { idempotencyKey, attempt, outcome });
    expect(await all(client.listEffects(threadId, { states: "unknown" }))).toHaveLength(1);
    expect(await decide()).toMatchObject({ state: "done", resolvedBy: "ada", result: undefined });
    await expect(client.getEffect(threadId, "other")).rejects.toThrow(NotFound);
  });

  test("an outcome that cannot be reported is a warning, and the work's error stays", async () => {
    const warned = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
    onTestFinished(() => warned.mockRestore());
    const closing = new Client(server.target);
    const lost = new Error("lost");
    const done = closing.effect(newThread(), "mail", {}, () => {
      closing.close();
      throw lost;
    });
    expect(await failure(done)).toBe(lost);
    expect(warned.mock.calls[0]?.[0]).toContain("did not record the outcome of effect");
  });

  test.each(VECTORS)("a digest is the same in all languages: $input", ({ input, sha256 }) => {
    expect(Buffer.from(inputDigest(JSON.parse(input))).toString("hex")).toBe(sha256);
  });
});

test("a preview says what rules would delete, and deletes nothing", async () => {
  const threadId = newThread();
  for (let n = 0; n < 3; n += 1) {
    await client.save(threadId, { n });
  }
  const rule = { threadId, keepLast: 1, deleteAfterMs: 86_400_000 };
  const preview = await client.previewRetention([rule]);
  expect(preview.rules).toEqual([{ ...rule, agentId: "", keepForMs: undefined }]);
  expect(preview.effects).toMatchObject([{ threadId, threadDeleted: false, checkpoints: 2n }]);
  expect(preview.total.checkpoints).toBe(2n);
  expect([preview.threads, preview.threadsDeleted]).toEqual([1n, 0n]);
  expect((await client.getThread(threadId)).checkpointCount).toBe(3n);
});

test("an erased thread is gone, and the receipt is signed by the server", async () => {
  const threadId = newThread();
  await client.save(threadId, { n: 1 });
  const { content, document, signer, signature } = await client.erase([threadId, "nobody"]);
  await expect(client.getThread(threadId)).rejects.toThrow(NotFound);
  expect(document["threads"]).toHaveLength(2);
  expect(JSON.parse(content)).toEqual(document);
  const key = createPublicKey({
    key: Buffer.from(`302a300506032b6570032100${signer}`, "hex"), // Ed25519 of RFC 8410
    format: "der",
    type: "spki",
  });
  const signed = Buffer.from(`tuskpoint receipt v1\n${content}`);
  expect(verify(null, signed, key, Buffer.from(signature, "hex"))).toBe(true);
  // The client's memory of the thread is gone too: the next save has no parent.
  await client.save(threadId, { n: 2 });
  expect((await client.load(threadId)).parentCheckpointId).toBe("");
});

test("the trail has the calls of a server", async () => {
  const threadId = newThread();
  await client.save(threadId, { n: 1 });
  await expect
    .poll(async () => (await all(client.trail())).map((entry) => entry.threadId), {
      timeout: 9_000,
    })
    .toContain(threadId);
  const [entry] = (await all(client.trail())).filter((one) => one.threadId === threadId);
  expect(entry).toMatchObject({ who: "", method: "SaveCheckpoint", status: "OK", calls: 1 });
  expect(entry?.last.getTime()).toBeGreaterThanOrEqual(entry?.first.getTime() ?? Infinity);
});

/** Return a batch of a trail. */
function batch(batchId: string, content: unknown): TrailBatch {
  return create(TrailBatchSchema, { batchId, content: Buffer.from(JSON.stringify(content)) });
}

test("a trail with a changed or missing batch is refused", () => {
  const time = "2026-11-28T10:00:00+00:00";
  const call = { who: "a", method: "Flush", thread_id: "", status: "OK", calls: 2 };
  const entries = [{ ...call, first: time, last: time }];
  const first = batch("1", { previous: "", entries });
  const previous = createHash("sha256").update(first.content).digest("hex");
  const second = batch("2", { previous, entries });
  const reader = new TrailReader();
  expect(reader.entries(first)).toHaveLength(1);
  expect(reader.entries(second)[0]).toMatchObject({ batchId: "2", who: "a", calls: 2 });
  const wrong: [TrailBatch, string][] = [
    [second, "it does not name the batch before"],
    [batch("3", { previous: "", entries: 1 }), "not a list"],
    [batch("3", null), "not an object"],
    [batch("3", { previous: "", entries: [{ ...entries[0], calls: 1.5 }] }), "calls"],
    [batch("3", { previous: "", entries: [{ ...entries[0], first: "now" }] }), "first"],
    [batch("3", { previous: "", entries: [null] }), "who"],
    [create(TrailBatchSchema, { content: Buffer.from("{") }), "not JSON"],
  ];
  for (const [broken, problem] of wrong) {
    expect(() => new TrailReader().entries(broken)).toThrow(problem);
    expect(() => new TrailReader().entries(broken)).toThrow(DataLoss);
  }
});
