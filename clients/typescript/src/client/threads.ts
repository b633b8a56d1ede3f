/** Describing, listing, retaining, copying and deleting threads. */

import { durationFromMs, timestampFromDate } from "@bufbuild/protobuf/wkt";

import { invalidField } from "../errors.js";
import { PruneStrategy, ThreadOrder } from "../gen/tuskpoint/v1/thread_service_pb.js";
import { locationOf, type Location } from "../messages/records.js";
import {
  receiptOf,
  retentionPreview,
  ruleOf,
  type Receipt,
  type RetentionPreview,
  type RetentionRule,
} from "../messages/retention.js";
import {
  manifestRecord,
  THREAD_STATES,
  threadRecord,
  type ManifestRecord,
  type ThreadRecord,
} from "../messages/threads.js";
import { choice, durability } from "../messages/words.js";
import type { CallOptions } from "../transport/connection.js";
import { BATCH, batches, callOf, checkTexts, notFound, entries } from "./arguments.js";
import { History } from "./history.js";
import type { ChangeOptions, KeepName, PruneOptions, ThreadFilter } from "./options.js";

const STRATEGIES: Readonly<Record<KeepName, PruneStrategy>> = {
  latest: PruneStrategy.KEEP_LATEST,
  nothing: PruneStrategy.DELETE_ALL,
};

/** The part of the client that reads and changes whole threads. */
export abstract class Threads extends History {
  /**
   * Describe a thread.
   *
   * @throws NotFound - The thread does not exist.
   */
  async getThread(threadId: string, options: CallOptions = {}): Promise<ThreadRecord> {
    checkTexts({ threadId });
    const { thread } = await this.raw.threads.getThread({ threadId }, callOf(options));
    if (thread === undefined) {
      throw notFound({ threadId, checkpointNs: "", checkpointId: "" });
    }
    return threadRecord(thread);
  }

  /**
   * Yield threads, by ID unless `latestFirst`.
   *
   * Each record says what its thread waits for or why it failed (`question`, `failure`), else what
   * happened last (`summary`).
   */
  async *listThreads(options: ThreadFilter = {}): AsyncGenerator<ThreadRecord, void, undefined> {
    const { agentId = "", label = "", state, changedAfter, changedBefore } = options;
    const filter = {
      agentId,
      label,
      ...(state === undefined ? {} : { state: choice("state", state, THREAD_STATES) }),
      ...(changedAfter === undefined ? {} : { changedAfter: timestampFromDate(changedAfter) }),
      ...(changedBefore === undefined ? {} : { changedBefore: timestampFromDate(changedBefore) }),
      order: options.latestFirst ? ThreadOrder.LATEST : ThreadOrder.UNSPECIFIED,
      pageSize: BATCH,
    };
    const fetch = (pageToken: string) =>
      this.raw.threads.listThreads({ ...filter, pageToken }, callOf(options));
    yield* entries(this.connection, fetch, (page) => page.threads.map(threadRecord));
  }

  /** Delete a thread with all its namespaces; return how many checkpoints the thread had. */
  async delete(threadId: string, options: ChangeOptions = {}): Promise<bigint> {
    checkTexts({ threadId });
    const request = { threadId, durability: durability(options.durability) };
    const deleted = await this.raw.threads.deleteThread(request, callOf(options));
    this.memory.forget(threadId);
    return deleted.deletedCheckpoints;
  }

  /**
   * Set how long a thread is kept after its last change; the server then deletes the thread.
   *
   * @param retentionMs - Milliseconds, in whole seconds, at least one second; `undefined` keeps the
   *   thread.
   * @throws NotFound - The thread does not exist.
   */
  async setRetention(
    threadId: string,
    retentionMs: number | undefined,
    options: ChangeOptions = {},
  ): Promise<void> {
    checkTexts({ threadId });
    if (retentionMs !== undefined && !(retentionMs >= 1_000 && retentionMs % 1_000 === 0)) {
      const problem = `it must be a time of one or more whole seconds, or undefined; not ${retentionMs}`;
      throw invalidField("retentionMs", problem);
    }
    const request = {
      threadId,
      ...(retentionMs === undefined ? {} : { retention: durationFromMs(retentionMs) }),
      durability: durability(options.durability),
    };
    await this.raw.threads.setRetention(request, callOf(options));
  }

  /**
   * Set whether search finds a thread's checkpoints. By default search finds them.
   *
   * Forks, copies and restores of a thread that is not searchable are not searchable either, until
   * they are made searchable.
   *
   * @throws NotFound - The thread does not exist.
   */
  async setSearchable(
    threadId: string,
    searchable: boolean,
    options: ChangeOptions = {},
  ): Promise<void> {
    checkTexts({ threadId });
    const request = { threadId, searchable, durability: durability(options.durability) };
    await this.raw.threads.setSearchable(request, callOf(options));
  }

  /**
   * Copy a thread into a thread without checkpoints; return how many checkpoints were copied.
   *
   * @throws NotFound - The thread does not exist.
   * @throws AlreadyExists - The new thread has checkpoints.
   */
  async copy(threadId: string, newThreadId: string, options: ChangeOptions = {}): Promise<bigint> {
    checkTexts({ threadId, newThreadId });
    const request = {
      sourceThreadId: threadId,
      targetThreadId: newThreadId,
      durability: durability(options.durability),
    };
    const { copiedCheckpoints } = await this.raw.threads.copyThread(request, callOf(options));
    return copiedCheckpoints;
  }

  /**
   * Delete old checkpoints of threads; return how many.
   *
   * @param threadIds - One thread, or several. Threads that do not exist are skipped.
   */
  async prune(threadIds: string | Iterable<string>, options: PruneOptions = {}): Promise<bigint> {
    const strategy = choice("keep", options.keep ?? "latest", STRATEGIES);
    let deleted = 0n;
    for (const batch of batches(threadIds)) {
      const request = { threadIds: batch, strategy, durability: durability(options.durability) };
      deleted += (await this.raw.threads.pruneThreads(request, callOf(options))).deletedCheckpoints;
      for (const threadId of batch) {
        this.memory.forget(threadId);
      }
    }
    return deleted;
  }

  /** Delete the checkpoints whose metadata has one of these `run_id`s; return how many. */
  async deleteRuns(
    runIds: string | Iterable<string>,
    options: ChangeOptions = {},
  ): Promise<bigint> {
    let deleted = 0n;
    for (const batch of batches(runIds)) {
      const request = { runIds: batch, durability: durability(options.durability) };
      deleted += (await this.raw.threads.deleteRuns(request, callOf(options))).deletedCheckpoints;
    }
    return deleted;
  }

  /**
   * Delete threads, wait until the deletion is certified, and return a signed receipt.
   *
   * @param threadIds - One thread, or several, at most 1,000. The receipt lists threads that do not
   *   exist with 0 checkpoints.
   * @throws Unavailable - The blob store is not available. Deleted threads stay deleted; another
   *   call returns a receipt.
   */
  async erase(threadIds: string | Iterable<string>, options: CallOptions = {}): Promise<Receipt> {
    const names = typeof threadIds === "string" ? [threadIds] : [...threadIds];
    const call = callOf(options);
    try {
      return receiptOf(await this.raw.threads.eraseThreads({ threadIds: names }, call));
    } finally {
      for (const threadId of names) {
        this.memory.forget(threadId);
      }
    }
  }

  /**
   * Return what retention rules would delete at this moment. Nothing is deleted.
   *
   * @param rules - The rules. Default: the rules of the server.
   * @throws InvalidRequest - A time is not in whole seconds above 0.
   */
  async previewRetention(
    rules: Iterable<RetentionRule> = [],
    options: CallOptions = {},
  ): Promise<RetentionPreview> {
    const request = { rules: [...rules].map(ruleOf) };
    return retentionPreview(await this.raw.threads.previewRetention(request, callOf(options)));
  }

  /**
   * Yield the checkpoints of a thread that the newest catalog leads to, by namespace and checkpoint
   * ID.
   *
   * @throws NotFound - The thread does not exist.
   */
  async *manifest(
    threadId: string,
    options: CallOptions = {},
  ): AsyncGenerator<ManifestRecord, void, undefined> {
    checkTexts({ threadId });
    const fetch = (pageToken: string) =>
      this.raw.threads.getManifest({ threadId, pageSize: BATCH, pageToken }, callOf(options));
    yield* entries(this.connection, fetch, (page) => page.entries.map(manifestRecord));
  }

  /**
   * Store a thread's manifest as a blob of its own; return the blob's location, `undefined` if no
   * checkpoint of the thread is certified.
   *
   * `tuskpoint audit manifest` and `tuskpoint-server recover` read the blob; nothing renews it.
   *
   * @throws NotFound - The thread does not exist.
   */
  async storeManifest(threadId: string, options: CallOptions = {}): Promise<Location | undefined> {
    checkTexts({ threadId });
    const request = { threadId, pageSize: 1, store: true };
    return locationOf((await this.raw.threads.getManifest(request, callOf(options))).manifest);
  }
}
