import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import {
  GapSchema,
  GetArchiveStatusResponseSchema,
  ServerLimitsSchema,
  TrailBatchSchema,
} from "@contract/admin_service_pb.js";
import { expect, test } from "vitest";
import { duration, limitsOf, wal } from "../src/operations/figures.ts";
import { findingsOf } from "../src/operations/findings.ts";
import { TrailReader } from "../src/operations/trail.ts";

const NOW = Date.UTC(2026, 0, 2);
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const before = (milliseconds: number) => timestampFromMs(NOW - milliseconds);
const titles = (status: object) =>
  findingsOf(create(GetArchiveStatusResponseSchema, status), NOW).map(
    ({ kind, title }) => `${kind}: ${title}`,
  );

test("a server that works has no findings", () => {
  expect(titles({})).toEqual([]);
  expect(
    titles({
      backlogCheckpoints: 9n,
      backlogBytes: 256n * 1024n * 1024n,
      oldestUncertifiedTime: before(15 * MINUTE),
      earliestExpireTime: before(-25 * HOUR),
      search: {
        unindexedCheckpoints: 1n,
        oldestUnindexedTime: before(MINUTE),
        memwal: { healthy: true },
      },
    }),
  ).toEqual([]);
});

test("each condition that needs a person is a finding, the worst first", () => {
  expect(
    titles({
      backlogBytes: 256n * 1024n * 1024n + 1n,
      failingRenewals: 2,
      search: {
        lastError: "disk full",
        unindexedCheckpoints: 7n,
        oldestUnindexedTime: before(16 * MINUTE),
        memwal: { healthy: false },
      },
      lastError: "no publisher answers",
      lastErrorTime: before(5 * MINUTE),
      oldestUncertifiedTime: before(16 * MINUTE),
      gaps: 3n,
      damagedThreadIds: ["t1", "t2"],
      earliestExpireTime: before(-23 * HOUR),
    }),
  ).toEqual([
    "bad: Certification or renewal fails, the last time 5 minutes ago",
    "bad: A change that was saved 16 minutes ago is not certified",
    "bad: 3 gaps: what cannot be stored, or was lost",
    "bad: 2 threads with damage in the journal",
    "bad: A blob that is needed expires in 23 hours",
    "warn: 256 MiB wait for certification",
    "warn: 2 blobs could not be renewed",
    "warn: Indexing for the search fails",
    "warn: Search is behind: 7 checkpoints wait, the oldest since 16 minutes ago",
    "warn: MemWal does not answer",
  ]);
});

test("every finding says what to do", () => {
  const lost = create(GapSchema, { reason: "gone", segmentSha256: new Uint8Array(32) });
  const status = create(GetArchiveStatusResponseSchema, {
    gaps: 1n,
    firstGaps: [lost],
    earliestExpireTime: before(HOUR),
    failingRenewals: 1,
  });
  const found = findingsOf(status, NOW);
  expect(found.every(({ advice }) => advice.length > 20)).toBe(true);
  expect(found[0]).toMatchObject({ detail: "gone" });
  expect(found[0]?.advice).toContain("copy of the store");
  expect(found[1]?.title).toBe("A blob that is needed expired 1 hour ago");
});

test("costs are told in WAL", () => {
  expect(wal(0n)).toBe("0 WAL");
  expect(wal(32_760_000n)).toBe("0.03276 WAL");
  expect(wal(1n)).toBe("0.000001 WAL");
  expect(wal(1_999_999_999n)).toBe("2 WAL");
  expect(wal(1_234_500_000_000n)).toBe("1,234.5 WAL");
});

test("limits have words, and units that people read", () => {
  const limits = create(ServerLimitsSchema, {
    maxMessageBytes: 8388608n,
    maxChannels: 4096,
    requestIdTtl: { seconds: 86400n },
  });
  const shown = new Map(limitsOf(limits));
  expect(shown.get("Largest message")).toBe("8.0 MiB");
  expect(shown.get("Most channels")).toBe("4,096");
  expect(shown.get("Request ID time to live")).toBe("1 day");
  expect(shown.get("Event time to live")).toBe("not said");
  expect(shown.size).toBe(ServerLimitsSchema.fields.length);
});

test("a duration has the largest unit that divides it", () => {
  const of = (seconds: bigint) =>
    duration({ seconds, nanos: 0, $typeName: "google.protobuf.Duration" });
  expect(of(86400n)).toBe("1 day");
  expect(of(5400n)).toBe("90 minutes");
  expect(of(61n)).toBe("61 seconds");
});

const sha256 = async (content: Uint8Array) => createHash("sha256").update(content).digest("hex");

const ENTRY = {
  who: "ci",
  method: "Flush",
  thread_id: "",
  status: "OK",
  calls: 2,
  first: "a",
  last: "b",
};

/** Return batches of a trail, where each batch names the preceding batch. */
async function trail(size: number) {
  const batches = [];
  let previous = "";
  for (let number = 0; number < size; number += 1) {
    const content = new TextEncoder().encode(JSON.stringify({ previous, entries: [ENTRY] }));
    batches.push(create(TrailBatchSchema, { batchId: `b${number}`, content, certified: true }));
    previous = await sha256(content);
  }
  return batches;
}

async function read(batches: Awaited<ReturnType<typeof trail>>, hash?: typeof sha256) {
  const reader = new TrailReader(hash);
  const entries = [];
  for (const batch of batches) {
    entries.push(...(await reader.take(batch)));
  }
  return { reader, entries };
}

test("a trail that was not changed has a chain that holds", async () => {
  const { reader, entries } = await read(await trail(3), sha256);
  expect(reader.broken).toBe("");
  expect(reader.size).toBe(3);
  expect(reader.last).toBe("b2");
  expect(entries[0]).toEqual({
    who: "ci",
    method: "Flush",
    threadId: "",
    status: "OK",
    calls: 2,
    last: "b",
    certified: true,
  });
});

test("a batch that was changed or left out breaks the chain", async () => {
  const whole = await trail(4);
  const without = whole.filter(({ batchId }) => batchId !== "b1");
  expect((await read(without, sha256)).reader.broken).toContain("batch b2");
  expect((await read(whole.slice(1), sha256)).reader.broken).toContain("batch b1");
  const changed = await trail(4);
  const text = new TextDecoder().decode(changed[1]?.content).replace("Flush", "Flash");
  (changed[1] as { content: Uint8Array }).content = new TextEncoder().encode(text);
  expect((await read(changed, sha256)).reader.broken).toContain("batch b2");
  expect((await read(without)).reader.broken).toBe("");
});

test("a batch that cannot be read is named, and the others are shown", async () => {
  const batches = await trail(2);
  for (const text of [
    "not json",
    "[]",
    JSON.stringify({ previous: "", entries: [{ ...ENTRY, calls: "2" }] }),
    '{"previous": "", "entries": [{"who": 1}]}',
    "\xff",
  ]) {
    const bad = create(TrailBatchSchema, {
      batchId: "bad",
      content: new TextEncoder().encode(text),
    });
    const { reader, entries } = await read([...batches, bad], sha256);
    expect(reader.broken).toContain("batch bad: it is malformed");
    expect(entries).toHaveLength(2);
  }
});
