/** Errors of calls, and the end of calls and connections, against a real server. */

import { afterAll, beforeAll, expect, test, vi } from "vitest";

import {
  Client,
  DeadlineExceeded,
  InvalidRequest,
  NotFound,
  PreconditionFailed,
  Unavailable,
} from "../../src/index.js";
import { failure, holdTime, newThread, TestServer } from "../kit.js";

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

test("errors carry status, reason, metadata and fields", async () => {
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

test("what cannot be sent is reported before anything is sent", async () => {
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
