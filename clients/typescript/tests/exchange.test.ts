/** The streams that all callers share: batches, order, breaks, refusals; against a scripted server. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Code, ConnectError } from "@connectrpc/connect";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { afterEach, expect, test, vi } from "vitest";

import { ErrorInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";
import { AdminService } from "../src/gen/tuskpoint/v1/admin_service_pb.js";
import { Durability } from "../src/gen/tuskpoint/v1/checkpoint_pb.js";
import {
  CheckpointService,
  type SaveCheckpointResponse,
} from "../src/gen/tuskpoint/v1/checkpoint_service_pb.js";
import { ErrorReason } from "../src/gen/tuskpoint/v1/errors_pb.js";
import {
  Client,
  Conflict,
  DeadlineExceeded,
  InvalidRequest,
  PermissionDenied,
  ResourceExhausted,
  ServerError,
  TuskPointError,
  Unauthenticated,
  Unavailable,
  Unimplemented,
} from "../src/index.js";
import { Calls } from "../src/transport/calls.js";
import { type CallOptions, Connection } from "../src/transport/connection.js";
import { holdTime } from "./kit.js";
import { scripted, type ScriptedServer } from "./scripted.js";
import { journaled, nameOf, ScriptedExchange, type ScriptedStream } from "./scripted-exchange.js";

const MIB = 1024 * 1024;
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) {
    await cleanup();
  }
});

interface Faced {
  readonly calls: Calls;
  readonly server: ScriptedServer;
  readonly exchange: ScriptedExchange;
  /** Save a checkpoint that a test knows by its ID. */
  readonly save: (name: string, more?: SaveMore) => Promise<SaveCheckpointResponse>;
  /** Wait until the server has read what was sent so far: calls of one connection come in order. */
  readonly settled: () => Promise<void>;
}

interface SaveMore extends CallOptions {
  readonly threadId?: string;
  readonly bytes?: number;
  readonly durability?: Durability;
}

/** Start a scripted server and calls to it. */
async function facing(): Promise<Faced> {
  const exchange = new ScriptedExchange();
  const server = await scripted((router) => {
    router.service(CheckpointService, { exchange: exchange.exchange });
    router.service(AdminService, { getServerInfo: () => ({}) });
  });
  const connection = new Connection({ target: server.target });
  const calls = new Calls(connection);
  cleanups.push(server.close, () => connection.close());
  const save = (
    name: string,
    { threadId = name, bytes = 1, durability, ...options }: SaveMore = {},
  ) =>
    calls.saveCheckpoint(
      {
        checkpoint: {
          ref: { threadId, checkpointId: name },
          state: { channels: [{ name: "a", content: { case: "value", value: contentOf(bytes) } }] },
        },
        durability: durability ?? Durability.JOURNALED,
      },
      options,
    );
  const settled = async () => {
    await connection.raw.admin.getServerInfo({});
  };
  return { calls, server, exchange, save, settled };
}

function contentOf(bytes: number): { type: string; data: Uint8Array } {
  return { type: "json", data: Buffer.alloc(bytes, "1") };
}

/** Return an error as the service ends a stream with. */
function ending(code: Code, reason: string): ConnectError {
  const info = { desc: ErrorInfoSchema, value: { reason, domain: "tuskpoint.dev" } };
  return new ConnectError("as the test wants it", code, undefined, [info]);
}

test("calls made together are one message, in their order", async () => {
  const { calls, exchange, save } = await facing();
  const names = Array.from({ length: 30 }, (_, index) => `s${index}`);
  const made = names.map((name) => save(name));
  const ref = { threadId: "t", checkpointId: "c" };
  const more = [
    calls.getCheckpoint(ref),
    calls.saveWrites({ ref, writes: [{ taskId: "1" }], durability: Durability.JOURNALED }),
  ];

  const stream = await exchange.opened(0);
  const frames = await stream.received(32);
  expect(stream.messages).toHaveLength(1);
  expect(frames.slice(1, 31).map(nameOf)).toEqual(names);
  expect([frames[0]?.call.case, frames[31]?.call.case]).toEqual(["get", "writes"]);
  expect(frames.map((one) => one.id)).toEqual(names.concat("", "").map((_, at) => BigInt(at + 1)));
  expect(stream.messages[0]?.hello?.session).toHaveLength(16);

  stream.save(...frames);
  const ids = (await Promise.all(made)).map((one) => one.ref?.checkpointId);
  expect(ids).toEqual(names);
  expect(await Promise.all(more)).toMatchObject([{ ref }, { durability: Durability.JOURNALED }]);
});

test("two messages wait for answers; what gathers meanwhile goes in the next", async () => {
  const { exchange, save, settled } = await facing();
  const made = [save("1")];
  const stream = await exchange.opened(0);
  await stream.received(1);
  made.push(save("2"));
  const [first, second] = await stream.received(2);
  made.push(...["3", "4", "5"].map((name) => save(name)));
  await settled();
  expect(stream.messages).toHaveLength(2);

  stream.save(first);
  const frames = await stream.received(5);
  expect(stream.messages.map((one) => one.frames.map(nameOf))).toEqual([
    ["1"],
    ["2"],
    ["3", "4", "5"],
  ]);
  stream.save(second, ...frames.slice(2));
  await Promise.all(made);
});

test("loads wait for no answer, and hold no save back", async () => {
  const { calls, exchange, save } = await facing();
  const ref = { threadId: "t" };
  const made = [calls.getCheckpoint(ref)];
  const stream = await exchange.opened(0);
  await stream.received(1);
  made.push(calls.getCheckpoint(ref));
  await stream.received(2);
  const saves = [save("1")];
  await stream.received(3);
  saves.push(save("2"));
  await stream.received(4);
  saves.push(save("3"));
  made.push(calls.getCheckpoint(ref));

  const five = await stream.received(5);
  expect(five.map((one) => one.call.case)).toEqual(["get", "get", "save", "save", "get"]);
  stream.save(five[2]);
  const six = await stream.received(6);
  stream.save(...six.filter((one) => one !== five[2]));
  await Promise.all([...made, ...saves]);
});

test("a message has at most 4 MiB", async () => {
  const { exchange, save } = await facing();
  const made = Array.from({ length: 5 }, (_, at) => save(`${at}`, { bytes: MIB }));

  const stream = await exchange.opened(0);
  const frames = await stream.received(5);
  expect(stream.messages.map((one) => one.frames.length)).toEqual([3, 2]);
  stream.save(...frames);
  await Promise.all(made);
});

test("answers come in any order, each to its call", async () => {
  const { exchange, save } = await facing();
  const made = ["1", "2", "3"].map((name) => save(name));
  const stream = await exchange.opened(0);
  const [first, second, third] = await stream.received(3);

  stream.save(third);
  expect((await made[2])?.ref?.checkpointId).toBe("3");
  stream.save(second, first);
  expect((await made[0])?.ref?.checkpointId).toBe("1");
  expect((await made[1])?.ref?.checkpointId).toBe("2");
});

type Break = (server: ScriptedServer, stream: ScriptedStream) => void;

test.each<[string, Break]>([
  ["is cut", (server) => server.cut()],
  ["fails", (_, stream) => stream.end(new ConnectError("gone", Code.Unavailable))],
  ["ends", (_, stream) => stream.end()],
])("after a stream that %s, what has no answer goes first, in its order", async (_, breakOff) => {
  const { exchange, save, server } = await facing();
  const made = ["1", "2", "3"].map((name) => save(name));
  const stream = await exchange.opened(0);
  const frames = await stream.received(3);
  stream.save(frames[1]);
  await made[1];
  breakOff(server, stream);
  made.push(save("4"));

  const next = await exchange.opened(1);
  const again = await next.received(3);
  expect(again.map(nameOf)).toEqual(["1", "3", "4"]);
  expect(again.map((one) => one.id)).toEqual([1n, 2n, 3n]);
  const [before, after] = [stream.messages[0]?.hello, next.messages[0]?.hello];
  expect(after?.session).toEqual(before?.session);
  expect(after?.attempt).toBeGreaterThan(before?.attempt ?? 0n);
  next.save(...again);
  await Promise.all(made);
});

test("a save without an ID that has no answer is not sent again: its outcome is unknown", async () => {
  const { calls, exchange, save, server } = await facing();
  const nameless = calls.saveCheckpoint({ checkpoint: { ref: { threadId: "t" } } });
  const named = save("1");
  const stream = await exchange.opened(0);
  await stream.received(2);
  const failed = expect(nameless).rejects.toThrow("not known whether the checkpoint was saved");
  server.cut();

  await failed;
  await expect(nameless).rejects.toThrow(Unavailable);
  const next = await exchange.opened(1);
  const again = await next.received(1);
  expect(again.map(nameOf)).toEqual(["1"]);
  next.save(...again);
  await named;
});

test("a stream that drains gets no more frames; what it did not answer goes to the next", async () => {
  const { calls, exchange, save, settled } = await facing();
  const nameless = calls.saveCheckpoint({ checkpoint: { ref: { threadId: "t" } } });
  const first = save("1");
  const stream = await exchange.opened(0);
  const frames = await stream.received(2);
  stream.drain();
  stream.save(frames[1]);
  await first;
  const second = save("2");
  await settled();
  expect(stream.frames).toHaveLength(2);
  stream.end(ending(Code.Unavailable, "DRAINING"));

  const next = await exchange.opened(1);
  const again = await next.received(2);
  expect(again.map(nameOf)).toEqual(["", "2"]);
  next.save(...again);
  await Promise.all([nameless, second]);
});

test("a refusal is one call's; its class is that of the call on its own", async () => {
  const { exchange, save } = await facing();
  const refused = save("1");
  const denied = save("2");
  const made = save("3");
  const stream = await exchange.opened(0);
  const [first, second, third] = await stream.received(3);
  const moved = { code: Code.Aborted, reason: ErrorReason.HEAD_MOVED, message: "moved" };
  const scope = { code: Code.PermissionDenied, reason: ErrorReason.SCOPE_MISSING, message: "no" };
  const outcomes = Promise.allSettled([refused, denied]);
  stream.answer(
    {
      id: first?.id ?? 0n,
      last: true,
      result: { case: "error", value: { ...moved, metadata: { head: "h" } } },
    },
    { id: second?.id ?? 0n, last: true, result: { case: "error", value: scope } },
  );
  stream.save(third);

  await made;
  await outcomes;
  await expect(refused).rejects.toThrow(Conflict);
  await expect(refused).rejects.toMatchObject({ reason: "HEAD_MOVED", metadata: { head: "h" } });
  await expect(denied).rejects.toThrow(PermissionDenied);
  await expect(denied).rejects.toThrow("give the client a token that has it");
  expect(exchange.streams).toHaveLength(1);
});

test("a refusal for now is tried again on the same stream, after the pause that it names", async () => {
  const { exchange, save } = await facing();
  const made = save("1");
  const stream = await exchange.opened(0);
  const [frame] = await stream.received(1);
  const value = {
    code: Code.ResourceExhausted,
    reason: ErrorReason.BACKLOG_FULL,
    message: "full",
    retryAfter: { nanos: 1_000_000 },
  };
  stream.answer({ id: frame?.id ?? 0n, last: true, result: { case: "error", value } });

  const [, again] = await stream.received(2);
  expect(nameOf(again)).toBe("1");
  stream.save(again);
  await made;
});

test("a save that asks for certification is answered twice, and frees its place at once", async () => {
  const { exchange, save } = await facing();
  const durability = Durability.CERTIFIED;
  const certified = [save("1", { durability })];
  const stream = await exchange.opened(0);
  await stream.received(1);
  certified.push(save("2", { durability }));
  const frames = [...(await stream.received(2))];
  stream.answer(...frames.map(journaled));
  const next = save("3");
  const [, , third] = await stream.received(3);
  stream.save(third);
  await next;

  stream.save(...frames);
  const reached = (await Promise.all(certified)).map((one) => one.durability);
  expect(reached).toEqual([durability, durability]);
});

test("a call has its deadline on the stream, and its late answer is dropped", async () => {
  const pass = holdTime();
  const { exchange, save } = await facing();
  const late = save("1", { timeoutMs: 300 });
  const stream = await exchange.opened(0);
  const [frame] = await stream.received(1);
  expect(durationMs(frame?.timeout ?? never())).toBe(300);
  pass(300);
  await expect(late).rejects.toThrow(DeadlineExceeded);

  stream.save(frame);
  const next = save("2");
  const [, second] = await stream.received(2);
  stream.save(second);
  await next;
  expect(exchange.streams).toHaveLength(1);
});

test("a signal ends a call, before it is sent and after, and the stream stays open", async () => {
  const { exchange, save } = await facing();
  const controller = new AbortController();
  const { signal } = controller;
  const sent = save("1", { signal });
  const stream = await exchange.opened(0);
  const [frame] = await stream.received(1);
  const outcomes = Promise.allSettled([sent, save("2", { signal })]);
  controller.abort(new Error("enough"));
  expect(await outcomes).toMatchObject([
    { reason: { message: "enough" } },
    { reason: { message: "enough" } },
  ]);
  await expect(save("3", { signal })).rejects.toThrow("enough");

  stream.save(frame);
  const next = save("4");
  const frames = await stream.received(2);
  expect(frames.map(nameOf)).toEqual(["1", "4"]);
  stream.save(frames[1]);
  await next;
});

test("what was given up is not sent again after a break, and lets the next of its thread go", async () => {
  const { exchange, save, server } = await facing();
  const controller = new AbortController();
  const { signal } = controller;
  const given = save("1", { threadId: "t", bytes: MIB, signal });
  const kept = save("2", { bytes: MIB });
  const stream = await exchange.opened(0);
  await stream.received(2);
  const waiting = save("3", { threadId: "t" });
  controller.abort(new Error("enough"));
  await expect(given).rejects.toThrow("enough");
  server.cut();

  const streams = [await exchange.opened(1), await exchange.opened(2)];
  const again = await Promise.all(streams.map((one) => one.received(1)));
  expect(again.map((frames) => frames.map(nameOf)).sort()).toEqual([["2"], ["3"]]);
  for (const [index, one] of streams.entries()) {
    one.save(...(again[index] ?? []));
  }
  await Promise.all([kept, waiting]);
});

test("a call that hangs after a break fails with the break", async () => {
  const pass = holdTime();
  const { exchange, save } = await facing();
  const outcome = save("1", { timeoutMs: 400 }).catch((error: unknown) => error);
  const stream = await exchange.opened(0);
  await stream.received(1);
  stream.end(ending(Code.Unavailable, "DRAINING"));
  await (await exchange.opened(1)).received(1);
  pass(400);

  expect(await outcome).toMatchObject({ reason: "DRAINING" });
});

test("large saves have a stream and a session of their own", async () => {
  const { exchange, save } = await facing();
  const large = save("large", { bytes: 5 * MIB + 5 });
  const stream = await exchange.opened(0);
  const [frame, ...chunks] = await stream.received(7);
  const small = save("small");
  const other = await exchange.opened(1);
  other.save(...(await other.received(1)));
  await small;

  expect(chunks.map(({ id, call }) => call.case === "chunk" && [id, call.value.offset])).toEqual(
    [0, 1, 2, 3, 4, 5].map((at) => [frame?.id, BigInt(at * MIB)]),
  );
  expect(stream.messages).toHaveLength(2);
  const sessions = exchange.streams.map((one) => one.messages[0]?.hello?.session);
  expect(sessions[0]).not.toEqual(sessions[1]);
  stream.save(frame);
  await large;
});

test("a large save is sent again whole after a break", async () => {
  const { exchange, save, server } = await facing();
  const large = save("1", { bytes: 2 * MIB });
  const stream = await exchange.opened(0);
  await stream.received(3);
  server.cut();

  const next = await exchange.opened(1);
  const again = await next.received(3);
  const sizes = again.map(({ call }) => call.case === "chunk" && call.value.data.length);
  expect(sizes).toEqual([false, MIB, MIB]);
  next.save(again[0]);
  await large;
});

test("a save of the client carries one ID through all its streams", async () => {
  const { exchange, server } = await facing();
  const client = new Client(server.target);
  cleanups.push(() => client.close());
  const made = client.save("t", { a: 1 }, { parentId: "" });
  const [first] = await (await exchange.opened(0)).received(1);
  server.cut();
  const next = await exchange.opened(1);
  const [second] = await next.received(1);
  next.save(second);

  expect(second?.call).toEqual(first?.call);
  expect(nameOf(second)).toBe((await made).checkpointId);
});

test("changes of one thread keep their order across both streams", async () => {
  const { exchange, save } = await facing();
  const large = save("1", { threadId: "t", bytes: MIB, durability: Durability.CERTIFIED });
  const stream = await exchange.opened(0);
  const [frame] = await stream.received(1);
  const made = [save("2", { threadId: "t" }), save("3", { threadId: "t", bytes: MIB })];
  const elsewhere = save("4");
  const other = await exchange.opened(1);
  const [unrelated] = await other.received(1);
  expect(nameOf(unrelated)).toBe("4");
  other.save(unrelated);
  await elsewhere;
  expect(stream.frames).toHaveLength(1);

  stream.answer(...(frame ? [journaled(frame)] : []));
  const [, second] = await other.received(2);
  expect(nameOf(second)).toBe("2");
  expect(stream.frames).toHaveLength(1);
  other.save(second);
  const [, third] = await stream.received(2);
  expect(nameOf(third)).toBe("3");
  stream.save(frame, third);
  await Promise.all([large, ...made]);
});

test("a change that ends without an answer lets the next of its thread go", async () => {
  const { calls, exchange, save, server } = await facing();
  const checkpoint = {
    ref: { threadId: "t" },
    state: { channels: [{ content: { case: "value" as const, value: contentOf(MIB) } }] },
  };
  const lost = calls.saveCheckpoint({ checkpoint });
  const stream = await exchange.opened(0);
  await stream.received(1);
  const next = save("2", { threadId: "t" });
  const failed = expect(lost).rejects.toThrow("not known");
  server.cut();
  await failed;

  const other = await exchange.opened(1);
  other.save(...(await other.received(1)));
  await next;
});

test("a stream is opened with the token of that moment, and once more if that was replaced", async () => {
  const directory = mkdtempSync(join(tmpdir(), "tuskpoint-typescript-"));
  const path = join(directory, "token");
  writeFileSync(path, "old");
  vi.stubEnv("TUSKPOINT_TOKEN_FILE", path);
  cleanups.push(() => rmSync(directory, { recursive: true }), vi.unstubAllEnvs);
  const { exchange, save } = await facing();
  const made = save("1");
  const stream = await exchange.opened(0);
  await stream.received(1);
  writeFileSync(path, "new");
  stream.end(ending(Code.Unauthenticated, "CREDENTIAL_INVALID"));

  const next = await exchange.opened(1);
  next.save(...(await next.received(1)));
  await made;
  expect(exchange.streams.map((one) => one.headers.get("authorization"))).toEqual([
    "Bearer old",
    "Bearer new",
  ]);

  const refused = Promise.allSettled([save("2"), save("3")]);
  await next.received(3);
  next.end(ending(Code.Unauthenticated, "CREDENTIAL_INVALID"));
  for (const outcome of await refused) {
    expect(outcome).toMatchObject({ reason: expect.any(Unauthenticated) });
  }
  expect(exchange.streams).toHaveLength(2);
});

test.each([Durability.JOURNALED, Durability.CERTIFIED])(
  "a new token moves calls to another stream while the old one is valid (%s)",
  async (durability) => {
    const directory = mkdtempSync(join(tmpdir(), "tuskpoint-typescript-"));
    const path = join(directory, "token");
    writeFileSync(path, "old");
    vi.stubEnv("TUSKPOINT_TOKEN_FILE", path);
    cleanups.push(() => rmSync(directory, { recursive: true }), vi.unstubAllEnvs);
    const { exchange, save, settled } = await facing();
    const made = [save("1", { durability })];
    const stream = await exchange.opened(0);
    const [first] = await stream.received(1);
    writeFileSync(path, "new");
    made.push(save("2"));
    await settled();
    expect(stream.frames).toHaveLength(1);
    expect(exchange.streams).toHaveLength(1);

    if (first !== undefined && durability === Durability.CERTIFIED) {
      stream.answer(journaled(first));
    } else {
      stream.save(first);
    }
    const next = await exchange.opened(1);
    expect(next.headers.get("authorization")).toBe("Bearer new");
    const names = durability === Durability.CERTIFIED ? ["1", "2"] : ["2"];
    const frames = await next.received(names.length);
    expect(frames.map(nameOf)).toEqual(names);
    next.save(...frames);
    const stored = await Promise.all(made);
    expect(stored.map((one) => one.ref?.checkpointId)).toEqual(["1", "2"]);
    expect(exchange.streams).toHaveLength(2);
  },
);

test("a server that cannot be used fails the calls at once", async () => {
  const server = await scripted((router) => router.service(AdminService, {}));
  const connection = new Connection({ target: server.target });
  cleanups.push(server.close, () => connection.close());

  const ref = { threadId: "t" };
  await expect(new Calls(connection).getCheckpoint(ref)).rejects.toThrow(Unimplemented);
});

test("a call whose streams break until its time is up fails with the failure", async () => {
  const pass = holdTime();
  const { exchange, save } = await facing();
  const outcome = save("1", { timeoutMs: 500 }).catch((error: unknown) => error);
  const isOver = outcome.then(() => undefined);
  for (let index = 0; ; index += 1) {
    const stream = await Promise.race([exchange.opened(index), isOver]);
    if (stream === undefined) {
      break;
    }
    pass(200);
    stream.end(ending(Code.Unavailable, "JOURNAL_UNAVAILABLE"));
  }
  expect(await outcome).toMatchObject({ reason: "JOURNAL_UNAVAILABLE" });
  expect(exchange.streams.length).toBeGreaterThan(1);
});

test("answers that break the contract end the stream and its calls", async () => {
  const { exchange, save } = await facing();
  const made = save("1");
  const stream = await exchange.opened(0);
  const [frame] = await stream.received(1);
  stream.answer({ id: 99n, last: true, result: { case: "written", value: {} } });
  await expect(made).rejects.toThrow(ServerError);

  const other = save("2");
  const next = await exchange.opened(1);
  const [second] = await next.received(1);
  const early = { case: "written" as const, value: {} };
  next.answer({ id: second?.id ?? 0n, last: true, result: early });
  await expect(other).rejects.toThrow("a call that was not sent");
  expect(frame).toBeDefined();
});

test("what was not sent is no concern of a stream that breaks the contract", async () => {
  const { exchange, save } = await facing();
  const made = [save("1")];
  const stream = await exchange.opened(0);
  await stream.received(1);
  made.push(save("2"));
  await stream.received(2);
  const later = save("3");
  const failed = Promise.allSettled(made);
  stream.answer({ id: 99n, last: true, result: { case: "written", value: {} } });
  for (const outcome of await failed) {
    expect(outcome).toMatchObject({ reason: expect.any(ServerError) });
  }

  const next = await exchange.opened(1);
  next.save(...(await next.received(1)));
  await later;
});

test("a request that cannot be written fails alone", async () => {
  const { calls, exchange, save } = await facing();
  const wrong = {
    checkpoint: { ref: { threadId: 7 as unknown as string } },
    vector: ["x" as never],
  };
  await expect(calls.saveCheckpoint(wrong)).rejects.toThrow(InvalidRequest);
  const huge = { checkpoint: { ref: { threadId: "t" }, metadataJson: Buffer.alloc(8 * MIB) } };
  await expect(calls.saveCheckpoint(huge)).rejects.toThrow(ResourceExhausted);

  const made = save("1");
  const stream = await exchange.opened(0);
  stream.save(...(await stream.received(1)));
  await made;
});

test("close fails what waits, and what comes later", async () => {
  const { calls, exchange, save } = await facing();
  const sent = save("1");
  const large = save("2", { bytes: MIB });
  await Promise.all([exchange.opened(0), exchange.opened(1)]);
  const outcomes = Promise.allSettled([sent, large]);
  calls.connection.close();

  for (const outcome of await outcomes) {
    expect(outcome).toMatchObject({ reason: expect.any(TuskPointError) });
  }
  await expect(save("3")).rejects.toThrow("this client is closed");
});

function never(): never {
  throw new Error("there is none");
}

test("an answer below the durability that was asked for is refused", async () => {
  const { exchange, save } = await facing();
  const made = save("1", { durability: Durability.CERTIFIED });
  const stream = await exchange.opened(0);
  const [frame] = await stream.received(1);
  stream.answer({
    id: frame?.id ?? 0n,
    last: true,
    result: { case: "saved", value: { durability: Durability.JOURNALED } },
  });
  await expect(made).rejects.toThrow("before it had the durability");
});
