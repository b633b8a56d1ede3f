/** Leases: one driver at a time, against a real server. */

import { setTimeout as pause } from "node:timers/promises";

import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";

import { Client, InvalidRequest, LeaseLost, ThreadBusy } from "../../src/index.js";
import { all, TestServer } from "../kit.js";

let server: TestServer;
let client: Client;
let other: Client;

beforeAll(async () => {
  server = await TestServer.start();
  client = new Client(server.target);
  other = new Client(server.target);
});

afterAll(async () => {
  client.close();
  other.close();
  await server.remove();
});

test("only the holder changes the thread, for as long as its work runs", async () => {
  const done = await client.withLease("t", { owner: "first", ttlMs: 1_000 }, async (lease) => {
    const { checkpointId } = await client.save("t", { x: 1 });
    await expect(other.save("t", { x: 2 })).rejects.toMatchObject({ owner: "first" });
    await expect(other.acquireLease("t")).rejects.toBeInstanceOf(ThreadBusy);
    await pause(1_500); // longer than the time of the lease
    await client.rollback("t", checkpointId);
    expect((await other.getThread("t")).lease).toMatchObject({ owner: "first", leaseId: "" });
    return lease.fence;
  });
  expect(done > 0n).toBe(true);
  expect((await other.getThread("t")).lease).toBeUndefined();
  await other.save("t", { x: 2 });
  await client.save("t", { x: 3 });
});

test("a driver that was taken over cannot change the thread, and is told", async () => {
  let taken: Awaited<ReturnType<Client["acquireLease"]>> | undefined;
  const work = client.withLease("u", { owner: "first", ttlMs: 1_000 }, async (_, lost) => {
    await client.save("u", { x: 1 });
    taken = await other.acquireLease("u", { owner: "second", onBusy: "take_over" });
    await new Promise((resolve) => lost.addEventListener("abort", resolve));
    expect(lost.reason).toBeInstanceOf(LeaseLost);
    await client.save("u", { x: 2 });
  });
  await expect(work).rejects.toMatchObject({ owner: "second" });
  expect((await all(client.list("u"))).length).toBe(1);
  expect(taken && (await other.keepLease(taken)).fence).toBe(taken?.fence);
  expect(taken && (await other.releaseLease(taken))).toBe(true);
  expect(taken && (await other.releaseLease(taken))).toBe(false);
});

test("a refused save tells the driver that it was taken over", async () => {
  const work = client.withLease("v", { ttlMs: 3_600_000 }, async (_, lost) => {
    const taken = await other.acquireLease("v", { onBusy: "take_over" });
    expect(lost.aborted).toBe(false);
    await expect(client.save("v", { x: 1 })).rejects.toBeInstanceOf(LeaseLost);
    expect(lost.reason).toBeInstanceOf(LeaseLost);
    await other.releaseLease(taken);
  });
  await work;
  const effects = client.withLease("v", { ttlMs: 3_600_000 }, async (_, lost) => {
    await other.acquireLease("v", { onBusy: "take_over" });
    await expect(client.beginEffect("v", "mail")).rejects.toBeInstanceOf(LeaseLost);
    expect(lost.reason).toBeInstanceOf(LeaseLost);
  });
  await effects;
});

test("a client drives the thread of the lease in its environment", async () => {
  const threadId = "a:b ☂";
  const { leaseId } = await other.acquireLease(threadId);
  vi.stubEnv("TUSKPOINT_LEASE", `${leaseId}:${threadId}`);
  onTestFinished(() => void vi.unstubAllEnvs());
  const child = new Client(server.target);
  onTestFinished(() => child.close());
  await child.save(threadId, { x: 1 });
  await child.save("another", { x: 1 });
  await expect(client.save(threadId, { x: 2 })).rejects.toBeInstanceOf(ThreadBusy);
  for (const malformed of ["no-colon", ":thread", "lease:"]) {
    vi.stubEnv("TUSKPOINT_LEASE", malformed);
    expect(() => new Client(server.target)).toThrow("`tuskpoint lease run THREAD -- COMMAND`");
  }
});

test("a second driver waits for its turn", async () => {
  const order: string[] = [];
  const first = await client.acquireLease("w");
  const second = other.withLease("w", { waitMs: 30_000 }, () => void order.push("second"));
  order.push("first");
  await client.releaseLease(first);
  await second;
  expect(order).toEqual(["first", "second"]);
});

test.each([{ ttlMs: 500 }, { ttlMs: Number.NaN }, { owner: "" }, { onBusy: "fight" as "wait" }])(
  "bad options are refused: %o",
  async (options) => {
    await expect(client.acquireLease("bad", options)).rejects.toBeInstanceOf(InvalidRequest);
  },
);
