/** Loading a checkpoint by its ID alone, and the server's clock, against a real server. */

import { afterAll, beforeAll, expect, test } from "vitest";

import { AdminService } from "../../src/gen/tuskpoint/v1/admin_service_pb.js";
import { Client, InvalidRequest, NotFound } from "../../src/index.js";
import { failure, newThread, TestServer } from "../kit.js";
import { scripted } from "../transport/scripted.js";

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

test("a checkpoint is loaded by its ID alone, from whatever namespace", async () => {
  const thread = newThread();
  const root = await client.save(thread, { n: 1 });
  const inner = await client.save(thread, { n: 2 }, { checkpointNs: "inner" });

  const found = await client.load(undefined, { checkpointId: root.checkpointId });
  const within = await client.load(undefined, { checkpointId: inner.checkpointId, view: "json" });

  expect(found).toMatchObject({ threadId: thread, checkpointNs: "", state: { n: 1 } });
  expect(within).toMatchObject({ threadId: thread, checkpointNs: "inner", state: { n: 2 } });
  const elsewhere = { checkpointId: inner.checkpointId, checkpointNs: "" };
  expect(await failure(client.load(undefined, elsewhere))).toBeInstanceOf(NotFound);
});

test("several threads that have the checkpoint are named", async () => {
  const thread = newThread();
  const { checkpointId } = await client.save(thread, { n: 1 });
  const forks = [];
  for (let fork = 0; fork < 5; fork += 1) {
    forks.push((await client.fork(thread, { checkpointId })).newThreadId);
    const error = await failure(client.load(undefined, { checkpointId }));
    expect(error).toBeInstanceOf(InvalidRequest);
    expect(error.metadata).toEqual({ field: "threadId" });
    expect(error.message).toContain(`checkpoint '${checkpointId}' is in `);
    const named = [thread, ...forks].filter((one) => error.message.includes(`'${one}'`));
    expect(named).toHaveLength(Math.min(5, forks.length + 1));
    expect(error.message.includes(", ...")).toBe(forks.length + 1 > 5);
  }
});

test("a checkpoint that no thread has, and none at all, are refused", async () => {
  const absent = await failure(client.load(undefined, { checkpointId: "nowhere" }));
  const nothing = await failure(client.load(undefined));
  const text = "nowhere" as unknown as object;

  expect(absent).toBeInstanceOf(NotFound);
  expect(absent).toMatchObject({
    reason: "CHECKPOINT_NOT_FOUND",
    metadata: { checkpoint_id: "nowhere" },
  });
  expect(absent.message).toContain("checkpoint 'nowhere' not found in any thread");
  expect(nothing).toBeInstanceOf(InvalidRequest);
  expect(nothing.message).toBe("threadId: pass a threadId, a checkpointId, or both");
  expect((await failure(client.load(undefined, text))).metadata).toEqual({ field: "options" });
});

test("a clock that made no step needs no acceptance", async () => {
  expect(await client.acceptClock()).toBeUndefined();
  expect((await client.info()).clockJump).toBeUndefined();
});

test("the accepted step of the clock is returned", async () => {
  const jump = { expectedTime: { seconds: 1_000n }, clockTime: { seconds: 9_000n } };
  const stepped = await scripted((router) =>
    router.service(AdminService, {
      getServerInfo: () => ({ clockJump: jump }),
      acceptClock: () => ({ accepted: jump }),
    }),
  );
  const caller = new Client(stepped.target);
  const expected = { expected: new Date(1_000_000), clock: new Date(9_000_000) };

  expect((await caller.info()).clockJump).toEqual(expected);
  expect(await caller.acceptClock()).toEqual(expected);
  caller.close();
  await stepped.close();
});
