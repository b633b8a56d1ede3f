import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type Checkpoint, CheckpointSchema, Durability } from "@contract/checkpoint_pb.js";
import { EventKind, ThreadEventSchema } from "@contract/history_service_pb.js";
import { expect, test } from "vitest";
import { keyOf, ThreadLog } from "../../src/thread/log.ts";

function saved(checkpointId: string, seq: number, more: Partial<Checkpoint> = {}): Checkpoint {
  const checkpoint = create(CheckpointSchema, {
    ref: { threadId: "t", checkpointNs: "", checkpointId },
    seq: BigInt(seq),
    durability: Durability.JOURNALED,
    createTime: timestampFromMs(1),
  });
  return Object.assign(checkpoint, more);
}

function event(kind: EventKind, seq: number, checkpoint?: Checkpoint, incarnation = 1n) {
  return create(ThreadEventSchema, {
    kind,
    seq: BigInt(seq),
    incarnation,
    ...(checkpoint ? { checkpoint } : {}),
  });
}

function ids(log: ThreadLog): string[] {
  return log.newestFirst().map(({ checkpointId }) => checkpointId);
}

test("checkpoints are sorted by their ID, the greatest first", () => {
  const log = new ThreadLog();
  for (const id of ["2", "3", "1"]) {
    log.put(saved(id, 1));
  }
  expect(ids(log)).toEqual(["3", "2", "1"]);
});

test("an older version of a checkpoint does not replace a newer one", () => {
  const log = new ThreadLog();
  log.put(saved("1", 5, { label: "new" }));
  log.put(saved("1", 2, { label: "old" }));
  expect(log.find("", "1")?.checkpoint.label).toBe("new");
});

test("a certification reaches every change up to its number", () => {
  const log = new ThreadLog();
  log.put(saved("1", 1));
  log.put(saved("2", 2));
  log.take(event(EventKind.CERTIFIED, 1));
  expect(log.find("", "1")?.checkpoint.durability).toBe(Durability.CERTIFIED);
  expect(log.find("", "2")?.checkpoint.durability).toBe(Durability.JOURNALED);
});

test("a deletion asks for a listing, which forgets what it does not name", () => {
  const log = new ThreadLog();
  log.put(saved("1", 1));
  log.put(saved("2", 2));
  expect(log.take(event(EventKind.CHECKPOINTS_DELETED, 3))).toBe("list-again");
  log.put(saved("3", 4));
  log.keepOnly(new Set([keyOf("", "2")]), 3n);
  expect(ids(log)).toEqual(["3", "2"]);
});

test("a deleted thread stays, until another begins in its place", () => {
  const log = new ThreadLog();
  log.take(event(EventKind.CHECKPOINT_SAVED, 1, saved("1", 1)));
  expect(log.take(event(EventKind.THREAD_DELETED, 2))).toBe("deleted");
  expect(ids(log)).toEqual(["1"]);
  expect(log.take(event(EventKind.CHECKPOINT_SAVED, 3, saved("9", 3), 2n))).toBe("began-again");
  expect(ids(log)).toEqual(["1"]);
});

test("a checkpoint that was deleted before its event came is left out", () => {
  const log = new ThreadLog();
  const gone = create(CheckpointSchema, { ref: { threadId: "t", checkpointId: "1" } });
  log.take(event(EventKind.CHECKPOINT_SAVED, 1, gone));
  expect(log.size).toBe(0);
});

test("a subgraph's first checkpoint leads to the one that ran it", () => {
  const log = new ThreadLog();
  const metadataJson = new TextEncoder().encode('{"parents": {"": "1"}, "step": 2}');
  log.put(
    create(CheckpointSchema, {
      ref: { threadId: "t", checkpointNs: "sub:x", checkpointId: "2" },
      seq: 2n,
      metadataJson,
    }),
  );
  const [entry] = log.newestFirst();
  expect(entry).toMatchObject({ parent: keyOf("", "1"), aside: true, title: "Step 2" });
});

test("metadata that cannot be read is not an obstacle", () => {
  const log = new ThreadLog();
  log.put(saved("1", 1, { metadataJson: new Uint8Array([0xff]) }));
  expect(log.newestFirst()[0]?.title).toBe("1");
});

test("a step took the time since the save of its parent, if both are known", () => {
  const log = new ThreadLog();
  log.put(saved("1", 1, { createTime: timestampFromMs(1000) }));
  log.put(saved("2", 2, { parentCheckpointId: "1", createTime: timestampFromMs(1120) }));
  log.put(saved("3", 3, { parentCheckpointId: "pruned", createTime: timestampFromMs(1500) }));
  log.put(saved("4", 4, { parentCheckpointId: "2", createTime: timestampFromMs(900) }));
  const took = log.newestFirst().map((entry) => [entry.checkpointId, log.tookMs(entry)]);
  expect(took).toEqual([
    ["4", undefined],
    ["3", undefined],
    ["2", 120],
    ["1", undefined],
  ]);
});
