/** Streams that break or are replaced: which calls are sent again, and which calls fail. */

import { Code, ConnectError } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";

import { Durability } from "../../../src/gen/tuskpoint/v1/checkpoint_pb.js";
import { Client, ServerError, Unauthenticated, Unavailable } from "../../../src/index.js";
import { holdTime } from "../../kit.js";
import type { ScriptedServer } from "../scripted.js";
import { journaled, nameOf, type ScriptedStream } from "../scripted-exchange.js";
import { contentOf, ending, facing, MIB, tokenFile } from "./facing.js";

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
  onTestFinished(() => client.close());
  const made = client.save("t", { a: 1 }, { parentId: "" });
  const [first] = await (await exchange.opened(0)).received(1);
  server.cut();
  const next = await exchange.opened(1);
  const [second] = await next.received(1);
  next.save(second);

  expect(second?.call).toEqual(first?.call);
  expect(nameOf(second)).toBe((await made).checkpointId);
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
  const replace = tokenFile("old");
  const { exchange, save } = await facing();
  const made = save("1");
  const stream = await exchange.opened(0);
  await stream.received(1);
  replace("new");
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
    const replace = tokenFile("old");
    const { exchange, save, settled } = await facing();
    const made = [save("1", { durability })];
    const stream = await exchange.opened(0);
    const [first] = await stream.received(1);
    replace("new");
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
  await expect(other).rejects.toThrow("protocol error: an answer to unknown frame");
  expect(frame).toBeDefined();
});

test("unsent calls survive a stream that breaks the contract", async () => {
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
