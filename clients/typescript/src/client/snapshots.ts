/** Capturing several threads together, and restoring the captures. */

import { RestoreMode } from "../gen/tuskpoint/v1/snapshot_service_pb.js";
import { encodeObject } from "../messages/json.js";
import { referenceOf, type Reference } from "../messages/records.js";
import { snapshotRecord, type SnapshotRecord } from "../messages/snapshots.js";
import { choice, durability } from "../messages/words.js";
import type { CallOptions } from "../transport/connection.js";
import { BATCH, callOf, checkTexts, entries } from "./arguments.js";
import { Lineages } from "./lineage.js";
import type {
  ChangeOptions,
  RestoreModeName,
  RestoreOptions,
  SnapshotFilter,
  SnapshotOptions,
} from "./options.js";

const MODES: Readonly<Record<RestoreModeName, RestoreMode>> = {
  new_threads: RestoreMode.NEW_THREADS,
  rollback: RestoreMode.ROLLBACK,
};

/** The part of the client that creates and restores snapshots. */
export abstract class Snapshots extends Lineages {
  /**
   * Capture the latest root checkpoint of several threads at one moment.
   *
   * The snapshot keeps the captured checkpoints when the threads are pruned or deleted.
   *
   * @param threadIds - The threads, 1 to 1,000.
   * @throws NotFound - A thread does not exist, or has no root checkpoint.
   */
  async createSnapshot(
    threadIds: string | Iterable<string>,
    options: SnapshotOptions = {},
  ): Promise<SnapshotRecord> {
    const request = {
      threadIds: typeof threadIds === "string" ? [threadIds] : [...threadIds],
      ...placeOf(options),
      metadataJson: encodeObject("metadata", options.metadata),
      durability: durability(options.durability),
    };
    const { snapshot } = await this.raw.snapshots.createSnapshot(request, callOf(options));
    return snapshotRecord(snapshot);
  }

  /**
   * Return a snapshot.
   *
   * @throws NotFound - The snapshot does not exist.
   */
  async getSnapshot(snapshotId: string, options: CallOptions = {}): Promise<SnapshotRecord> {
    checkTexts({ snapshotId });
    const { snapshot } = await this.raw.snapshots.getSnapshot({ snapshotId }, callOf(options));
    return snapshotRecord(snapshot);
  }

  /**
   * Return the newest snapshot.
   *
   * @throws NotFound - No snapshot matches.
   */
  async latestSnapshot(options: SnapshotFilter = {}): Promise<SnapshotRecord> {
    const request = placeOf(options);
    const { snapshot } = await this.raw.snapshots.getLatestSnapshot(request, callOf(options));
    return snapshotRecord(snapshot);
  }

  /** Yield snapshots, newest first. */
  async *listSnapshots(
    options: SnapshotFilter = {},
  ): AsyncGenerator<SnapshotRecord, void, undefined> {
    const filter = { ...placeOf(options), pageSize: BATCH };
    const fetch = (pageToken: string) =>
      this.raw.snapshots.listSnapshots({ ...filter, pageToken }, callOf(options));
    yield* entries(this.connection, fetch, (page) => page.snapshots.map(snapshotRecord));
  }

  /**
   * Restore every member of a snapshot, or none; return the restored checkpoints, in the order of
   * the snapshot's members.
   *
   * @throws NotFound - The snapshot does not exist, or a thread to roll back was deleted.
   */
  async restoreSnapshot(snapshotId: string, options: RestoreOptions = {}): Promise<Reference[]> {
    checkTexts({ snapshotId });
    const request = {
      snapshotId,
      mode: choice("mode", options.mode ?? "new_threads", MODES),
      skipDeleted: options.skipDeleted ?? false,
      durability: durability(options.durability),
    };
    const { restored } = await this.raw.snapshots.restoreSnapshot(request, callOf(options));
    for (const { threadId } of restored) {
      this.memory.forget(threadId);
    }
    return restored.map(referenceOf);
  }

  /**
   * Delete a snapshot and all data that only the snapshot keeps; return whether the snapshot
   * existed.
   *
   * Threads restored from the snapshot stay.
   */
  async deleteSnapshot(snapshotId: string, options: ChangeOptions = {}): Promise<boolean> {
    checkTexts({ snapshotId });
    const request = { snapshotId, durability: durability(options.durability) };
    return (await this.raw.snapshots.deleteSnapshot(request, callOf(options))).deleted;
  }
}

function placeOf(options: SnapshotFilter): {
  sessionId: string;
  hostname: string;
  workingDirectory: string;
} {
  const { sessionId = "", hostname = "", workingDirectory = "" } = options;
  checkTexts({ sessionId, hostname, workingDirectory });
  return { sessionId, hostname, workingDirectory };
}
