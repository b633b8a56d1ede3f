/** The streams that all callers share: batches, order, refusals and deadlines. */

import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";

import { AdminService } from "../../../src/gen/tuskpoint/v1/admin_service_pb.js";
import { Durability } from "../../../src/gen/tuskpoint/v1/checkpoint_pb.js";
import { ErrorReason } from "../../../src/gen/tuskpoint/v1/errors_pb.js";
import {
  Conflict,
  DeadlineExceeded,
  InvalidRequest,
  PermissionDenied,
  ResourceExhausted,
  TuskPointError,
  Unimplemented,
} from "../../../src/index.js";
import { Calls } from "../../../src/transport/calls.js";
import { Connection } from "../../../src/transport/connection.js";
import { holdTime } from "../../kit.js";
import { scripted } from "../scripted.js";
import { journaled, nameOf } from "../scripted-exchange.js";
import { facing, MIB } from "./facing.js";

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

test("a refusal concerns one call; its class is the class of the call outside a stream", async () => {
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

test("a server that cannot be used fails the calls at once", async () => {
  const server = await scripted((router) => router.service(AdminService, {}));
  const connection = new Connection({ target: server.target });
  onTestFinished(() => connection.close());
  onTestFinished(server.close);

  const ref = { threadId: "t" };
  await expect(new Calls(connection).getCheckpoint(ref)).rejects.toThrow(Unimplemented);
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
  await expect(made).rejects.toThrow("has less durability than the request");
});

function never(): never {
  throw new Error("there is none");
}
