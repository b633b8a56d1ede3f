/** Forks, rollbacks, ancestry, differences and verification. */

import {
  comparing,
  diffOf,
  lineageOf,
  verdictOf,
  verificationOf,
  type CheckpointVerdict,
  type Diff,
  type ThreadLineage,
  type Verification,
} from "../messages/lineage.js";
import { durability } from "../messages/words.js";
import type { CallOptions } from "../transport/connection.js";
import { callOf, checkTexts, refOf } from "./arguments.js";
import type {
  DiffOptions,
  Fork,
  ForkOptions,
  Rollback,
  RollbackOptions,
  VerifyOptions,
} from "./options.js";
import { Threads } from "./threads.js";

/** The part of the client that forks, rolls back, compares and verifies threads. */
export abstract class Lineages extends Threads {
  /**
   * Create a new thread that starts with a checkpoint of another thread.
   *
   * The fork keeps the checkpoint's ID, pending writes and label.
   *
   * @throws NotFound - The checkpoint does not exist.
   * @throws AlreadyExists - The new thread has checkpoints.
   */
  async fork(threadId: string, options: ForkOptions = {}): Promise<Fork> {
    const { newThreadId = "" } = options;
    checkTexts({ newThreadId });
    const request = {
      ref: refOf(threadId, options),
      newThreadId,
      durability: durability(options.durability),
    };
    const fork = await this.raw.threads.forkThread(request, callOf(options));
    return {
      newThreadId: fork.ref?.threadId ?? "",
      checkpointId: fork.ref?.checkpointId ?? "",
      forkedFrom: fork.forkedFrom,
    };
  }

  /**
   * Append a checkpoint that has the state of an earlier checkpoint. Nothing is removed.
   *
   * The new checkpoint has no pending writes: tasks run again, and interrupts are raised again.
   *
   * @param checkpointId - The checkpoint to go back to.
   * @throws NotFound - The checkpoint does not exist.
   * @throws Conflict - The latest checkpoint is not `expectedHead`.
   */
  async rollback(
    threadId: string,
    checkpointId: string,
    options: RollbackOptions = {},
  ): Promise<Rollback> {
    const { checkpointNs, expectedHead } = options;
    const request = {
      ref: refOf(threadId, { checkpointNs, checkpointId }),
      ...(expectedHead === undefined ? {} : { expectedHead }),
      durability: durability(options.durability),
      leaseId: this.calls.leases.of(threadId) ?? "",
    };
    const appended = await this.calls.change(
      this.raw.threads.rollbackThread(request, callOf(options)),
    );
    this.memory.forget(threadId);
    return {
      threadId: appended.ref?.threadId ?? "",
      checkpointId: appended.ref?.checkpointId ?? "",
      rolledBackFrom: appended.rolledBackFrom,
    };
  }

  /**
   * Return the ancestors and descendants of a thread.
   *
   * @throws NotFound - The thread does not exist.
   */
  async lineage(threadId: string, options: CallOptions = {}): Promise<ThreadLineage> {
    checkTexts({ threadId });
    return lineageOf(await this.raw.threads.getLineage({ threadId }, callOf(options)));
  }

  /**
   * Compare the states of two checkpoints, in the JSON view.
   *
   * @param threadId - The thread.
   * @param fromCheckpointId - The first side. The second side is the latest checkpoint, unless the
   *   options name one.
   * @throws NotFound - A checkpoint does not exist.
   */
  async diff(threadId: string, fromCheckpointId: string, options: DiffOptions = {}): Promise<Diff> {
    const { checkpointNs, toCheckpointId, toThreadId = threadId, maxChanges = 0 } = options;
    const from = refOf(threadId, { checkpointNs, checkpointId: fromCheckpointId });
    const to = refOf(toThreadId, { checkpointNs, checkpointId: toCheckpointId });
    const request = comparing(from, to, maxChanges);
    return diffOf(await this.raw.threads.diffCheckpoints(request, callOf(options)));
  }

  /**
   * Read every stored checkpoint of a thread back from the blob store, and check it.
   *
   * @throws NotFound - The thread does not exist.
   * @throws Unavailable - The server stopped during the verification; verify again.
   */
  async verify(threadId: string, options: VerifyOptions = {}): Promise<Verification> {
    checkTexts({ threadId });
    const failures: CheckpointVerdict[] = [];
    let total: Parameters<typeof verificationOf>[0];
    const frames = this.raw.threads.verifyThread({ threadId }, callOf(options));
    for await (const { frame } of frames) {
      if (frame.case === "total") {
        total = frame.value;
      } else if (frame.case === "verdict") {
        const verdict = verdictOf(frame.value);
        if (verdict.verdict === "fail") {
          failures.push(verdict);
        }
        options.onVerdict?.(verdict);
      }
    }
    return verificationOf(total, failures);
  }
}
