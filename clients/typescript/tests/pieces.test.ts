/** The parts without I/O: targets, IDs, versions, retries, chunks, streams that resume. */

import { create, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";

import { CheckpointAssembler, DeltaHistoryAssembler } from "../src/frames/assembling.js";
import { mint, newCheckpointId } from "../src/messages/checkpoint-ids.js";
import { Connection } from "../src/transport/connection.js";
import { ReplayStream } from "../src/frames/resumable.js";
import { InvalidRequest, ServerError } from "../src/errors.js";
import { CheckpointSchema, type Checkpoint } from "../src/gen/tuskpoint/v1/checkpoint_pb.js";
import {
  GetDeltaHistoryResponseSchema,
  LoadCheckpointResponseSchema,
  SaveCheckpointRequestSchema,
  type SaveCheckpointRequest,
} from "../src/gen/tuskpoint/v1/checkpoint_service_pb.js";
import { ReplayThreadResponseSchema } from "../src/gen/tuskpoint/v1/history_service_pb.js";
import { VersionSchema } from "../src/gen/tuskpoint/v1/value_pb.js";
import { ResumeAttempts } from "../src/transport/resume-attempts.js";
import { Attempts, isWorthRepeating, RETRY_POLICY } from "../src/transport/retry.js";
import { Memory, nextVersion } from "../src/client/saving.js";
import { announce, chunksOf } from "../src/frames/sending.js";
import { isLoopback, normalizeTarget } from "../src/transport/target.js";

const MIB = 1024 * 1024;
describe("targets", () => {
  test.each([
    ["127.0.0.1:7390", "127.0.0.1:7390", true],
    [" localhost:1 ", "localhost:1", true],
    ["[::1]:7390", "[::1]:7390", true],
    ["127.9.9.9:80", "127.9.9.9:80", true],
    ["dns://8.8.8.8/example.org:7390", "dns:///example.org:7390", false],
    ["dns:localhost:7390", "dns:///localhost:7390", true],
    ["one:1, [::1]:2", "one:1,[::1]:2", false],
    ["127.0.0.1:1,localhost:2", "127.0.0.1:1,localhost:2", true],
    ["10.0.0.1:65535", "10.0.0.1:65535", false],
  ])("%s is one", (text, target, isHere) => {
    expect(normalizeTarget(text)).toBe(target);
    expect(isLoopback(target)).toBe(isHere);
  });

  test.each([
    "",
    "host",
    "host:",
    ":7390",
    "host:0",
    "host:65536",
    "user@host:1",
    "a b:1",
    "::1:7390",
    "unix:/tmp/socket",
    "host:1/path",
    "one:1,,two:2",
    "one:1,two",
    "dns:///one:1,two:2",
    "one:1,dns:///two:2",
  ])("'%s' is none", (text) => {
    expect(() => normalizeTarget(text)).toThrow(InvalidRequest);
  });

  test("of a URL the rest is suggested", () => {
    expect(() => normalizeTarget("https://host:443/")).toThrow("try 'host:443'");
  });

  test("the argument wins over the environment, and both over the default", () => {
    const environment = { TUSKPOINT_TARGET: "there:1" };
    expect(new Connection({ target: "here:2" }, environment).target).toBe("here:2");
    expect(new Connection({}, environment).target).toBe("there:1");
    expect(new Connection({}, {}).target).toBe("127.0.0.1:7390");
  });
});

describe("checkpoint IDs", () => {
  test("are UUIDs of version 6 that rise", () => {
    let last = "";
    for (let n = 0; n < 100; n += 1) {
      const next = newCheckpointId(last);
      expect(next).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
      expect(next > last).toBe(true);
      last = next;
    }
  });

  test("follow the example of RFC 9562, appendix A.5", () => {
    const ticks = 138648505420000000n;
    expect(mint(ticks, 0x33c8_9f6b_deced846n & ((1n << 62n) - 1n), "")).toMatch(
      /^1ec9414c-232a-6b00-/,
    );
  });

  test("follow one of the future, and refuse what none can follow", () => {
    const future = "ffffffff-0000-6000-8000-000000000000";
    expect(newCheckpointId(future) > future).toBe(true);
    const first = newCheckpointId("cp-001");
    const second = newCheckpointId(first);
    expect(first > "cp-001" && second > first && second < "cp-002").toBe(true);
    expect(second).toHaveLength("cp-001".length + 37);
    expect(() => newCheckpointId("z".repeat(92))).toThrow(InvalidRequest);
  });
});

describe("versions", () => {
  const version = (kind: MessageInitShape<typeof VersionSchema>["kind"]) =>
    create(VersionSchema, { kind: kind ?? { case: undefined } });
  const text = (value: string) => version({ case: "text", value });
  const padded = (n: number) => `${String(n).padStart(32, "0")}.${"0".repeat(16)}`;

  test("continue in their kind", () => {
    expect(nextVersion([]).kind).toEqual({ case: "text", value: padded(1) });
    expect(nextVersion([text(padded(9)), text(padded(10))]).kind.value).toBe(padded(11));
    const integers = [2n ** 53n + 1n, 5n].map((value) => version({ case: "integer", value }));
    expect(nextVersion(integers).kind).toEqual({ case: "integer", value: 2n ** 53n + 2n });
    const numbers = [1.5, 7.25].map((value) => version({ case: "number", value }));
    expect(nextVersion(numbers).kind).toEqual({ case: "number", value: 8 });
  });

  test("of mixed kinds, or of texts without a number, have no next", () => {
    expect(() => nextVersion([text("abc")])).toThrow(InvalidRequest);
    const mixed = [text("1"), version({ case: "integer", value: 1n })];
    expect(() => nextVersion(mixed)).toThrow(InvalidRequest);
  });
});

describe("what a client remembers", () => {
  const known = { checkpointId: "1", parentId: "", channels: new Map() };

  test("is bounded, whichever threads and namespaces it saves to", () => {
    const memory = new Memory();
    for (let at = 0; at <= 1024; at += 1) {
      memory.put("t", `review:${at}`, known);
    }
    expect(memory.get("t", "review:0")).toBeUndefined();
    expect(memory.get("t", "review:1")).toBe(known);
    expect(memory.get("t", "review:1024")).toBe(known);
  });

  test("is forgotten by thread", () => {
    const memory = new Memory();
    memory.put("t", "", known);
    memory.put("t", "inner", known);
    memory.put("u", "", known);
    memory.forget("t");
    expect([memory.get("t", ""), memory.get("t", "inner")]).toEqual([undefined, undefined]);
    expect(memory.get("u", "")).toBe(known);
  });
});

describe("retries", () => {
  const gone = { status: "UNAVAILABLE", reason: "" } as const;

  test("pauses grow, with jitter and what the server asks for, to a bound", () => {
    const times = { giveUpMs: 1e9, deadlineMs: 1e9 };
    const attempts = new Attempts(RETRY_POLICY, 0, times, "safe");
    const pauses = Array.from({ length: 7 }, () => attempts.delayMs(0, gone, () => 0.5));
    expect(pauses).toEqual([50, 100, 200, 400, 800, 1_000, 1_000]);
    expect(attempts.delayMs(0, { ...gone, retryAfterMs: 5_000 }, () => 0)).toBe(5_000);
  });

  test("end with the attempts, the time and the deadline", () => {
    const times = { giveUpMs: 1_000, deadlineMs: 2_000 };
    const few = new Attempts({ ...RETRY_POLICY, maxAttempts: 2 }, 0, times, "safe");
    expect(few.delayMs(0, gone, () => 0)).toBe(0);
    expect(few.delayMs(0, gone, () => 0)).toBeUndefined();
    const late = new Attempts(RETRY_POLICY, 0, times, "safe");
    expect(late.delayMs(1_000, gone, () => 0)).toBeUndefined();
    expect(late.remainingMs(1_500)).toBe(500);
    expect(late.remainingMs(9_000)).toBe(0);
  });

  test("are for what waiting helps, and what may be sent twice", () => {
    expect(isWorthRepeating(gone, "safe")).toBe(true);
    expect(isWorthRepeating(gone, "unsafe")).toBe(false);
    expect(isWorthRepeating({ ...gone, reason: "DRAINING" }, "unsafe")).toBe(true);
    expect(isWorthRepeating({ ...gone, status: "ABORTED" }, "safe")).toBe(false);
    expect(isWorthRepeating({ ...gone, status: "RESOURCE_EXHAUSTED" }, "safe")).toBe(false);
  });

  test("of a stream restart once it delivered an item, or lasted a while", () => {
    const times = { giveUpMs: 1_000, deadlineMs: Number.POSITIVE_INFINITY };
    const attempts = new ResumeAttempts(0, times, "safe");
    expect(attempts.begin(0)).toBe(Number.POSITIVE_INFINITY);
    expect(attempts.afterFailure(5_000).delayMs(5_000, gone, () => 0)).toBeUndefined();
    attempts.begin(5_000);
    attempts.delivered();
    expect(attempts.afterFailure(6_000).delayMs(6_000, gone, () => 0)).toBe(0);
    attempts.begin(7_000);
    expect(attempts.afterFailure(306_000).delayMs(306_000, gone, () => 0)).toBe(0);
  });

  test("of a stream end with the deadline that the caller gave it", () => {
    const times = { giveUpMs: 1_000, deadlineMs: 1_000 };
    const attempts = new ResumeAttempts(0, times, "safe", 1_000);
    attempts.begin(0);
    attempts.delivered();
    expect(attempts.afterFailure(900).delayMs(900, gone, () => 0)).toBe(0);
    expect(attempts.begin(950)).toBe(50);
    attempts.delivered();
    expect(attempts.afterFailure(1_000).delayMs(1_000, gone, () => 0)).toBeUndefined();
  });
});

describe("chunks", () => {
  function saveOf(...sizes: number[]) {
    const content = (size: number) => ({
      case: "value" as const,
      value: { type: "bytes", data: Buffer.alloc(size, "0123456789abc") },
    });
    const [first = 0, ...rest] = sizes;
    return create(SaveCheckpointRequestSchema, {
      checkpoint: { state: { channels: rest.map((size) => ({ content: content(size) })) } },
      writes: [{ content: content(first) }],
    });
  }

  /** Return the checkpoint of a save in the form of a read, with its writes. */
  function wholeOf(save: SaveCheckpointRequest): Checkpoint {
    const { checkpoint = create(CheckpointSchema), writes = [] } = save;
    return { ...checkpoint, writes };
  }

  test("are for values above 1 MiB, and for the largest if all together exceed 2 MiB", () => {
    expect(announce(saveOf(0, MIB)).values).toHaveLength(0);
    expect(announce(saveOf(0, MIB + 1)).values).toHaveLength(1);
    expect(announce(saveOf(MIB, MIB)).values).toHaveLength(0);
    expect(announce(saveOf(1, MIB, MIB)).values).toHaveLength(1);
  });

  test("are put together to what was sent, channels first", () => {
    const save = saveOf(3 * MIB + 5, 7, 2 * MIB, 0);
    const { save: announced, values } = announce(save);
    const chunks = [...chunksOf(values)];

    expect(chunks.map((one) => one.valueIndex)).toEqual([0, 0, 1, 1, 1, 1]);
    const assembler = new CheckpointAssembler();
    let whole = assembler.add({ case: "checkpoint", value: wholeOf(announced) });
    for (const value of chunks) {
      expect(whole).toBeUndefined();
      whole = assembler.add({ case: "chunk", value });
    }
    assembler.end();
    const bytes = toBinary(CheckpointSchema, whole ?? create(CheckpointSchema));
    expect(Buffer.compare(bytes, toBinary(CheckpointSchema, wholeOf(save)))).toBe(0);
    expect(announce(save).values).toHaveLength(2); // The save itself is unchanged.
  });

  test("that break the contract are not used", () => {
    const large = (sizeBytes: bigint) => ({
      content: { case: "large" as const, value: { sizeBytes } },
    });
    const begin = () => {
      const assembler = new CheckpointAssembler();
      const state = { channels: [large(0n), large(2n)] };
      const value = { state };
      const frame = { frame: { case: "checkpoint" as const, value } };
      const add = (init: MessageInitShape<typeof LoadCheckpointResponseSchema>) =>
        assembler.add(create(LoadCheckpointResponseSchema, init).frame);
      const chunk = (valueIndex: number, offset: bigint, ...data: number[]) =>
        add({
          frame: { case: "chunk", value: { valueIndex, offset, data: Uint8Array.from(data) } },
        });
      expect(add(frame)).toBeUndefined();
      return { assembler, add, chunk, again: () => add(frame) };
    };
    expect(() => begin().chunk(0, 0n, 1)).toThrow("value 0 at 0 where value 1 at 0 was due");
    expect(() => begin().chunk(1, 1n, 1)).toThrow(ServerError);
    expect(() => begin().chunk(1, 0n)).toThrow("an empty chunk");
    expect(() => begin().chunk(1, 0n, 1, 2, 3)).toThrow("more than the 2 bytes");
    expect(() => begin().again()).toThrow("in the middle");
    expect(() => begin().assembler.end()).toThrow("the end in the middle");
    expect(() => begin().add({})).toThrow("an empty frame");
    const full = begin();
    expect(full.chunk(1, 0n, 1, 2)?.state?.channels).toHaveLength(2);
    expect(() => full.chunk(1, 2n, 1)).toThrow("not announced");
  });

  test("of delta histories make one history per channel", () => {
    const assembler = new DeltaHistoryAssembler();
    const add = (value: { channel: string; seed?: object; writes?: object[] }) =>
      assembler.add(
        create(GetDeltaHistoryResponseSchema, { frame: { case: "history", value } }).frame,
      );
    add({ channel: "a", seed: { name: "a" }, writes: [{ taskId: "1" }] });
    add({ channel: "a", writes: [{ taskId: "2" }] });
    add({ channel: "b" });
    expect(() => add({ channel: "a" })).toThrow("after another channel");
    expect(() => add({ channel: "b", seed: {} })).toThrow("a second seed");
    const whole = assembler.end();
    expect(whole.map((one) => [one.channel, one.writes.map((write) => write.taskId)])).toEqual([
      ["a", ["1", "2"]],
      ["b", []],
    ]);
  });
});

describe("a replay that is restarted", () => {
  test("passes over what it delivered, in every namespace", () => {
    const stream = new ReplayStream({ threadId: "t", fromCheckpointId: "a" });
    const take = (checkpointId: string, checkpointNs: string) => {
      const value = { ref: { checkpointId, checkpointNs } };
      return stream.add(
        create(ReplayThreadResponseSchema, { frame: { case: "checkpoint", value } }),
      );
    };
    expect(stream.nextRequest().fromCheckpointId).toBe("a");
    expect(take("b", "")).toBeDefined();
    expect(take("b", "x")).toBeDefined();
    expect(stream.nextRequest()).toMatchObject({ threadId: "t", fromCheckpointId: "b" });
    expect(take("b", "")).toBeUndefined();
    expect(take("b", "x")).toBeUndefined();
    expect(take("b", "y")).toBeDefined();
    expect(take("\u{1f418}", "")).toBeDefined();
    expect(take("\uffff", "")).toBeUndefined();
    stream.end();
  });
});
