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

/** The part of the client that deals with where threads come from. */
export abstract class Lineages extends Threads {
  /**
   * Make a new thread that begins with a checkpoint of another.
   *
   * The fork keeps the checkpoint's ID, pending writes and label.
   *
   * @throws NotFound - There is no such checkpoint.
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
   * Append a checkpoint that has the state of an earlier one. Nothing is removed.
   *
   * It has no pending writes: tasks run, and interrupts raise, again.
   *
   * @param checkpointId - The checkpoint to go back to.
   * @throws NotFound - There is no such checkpoint.
   * @throws Conflict - The latest is not `expectedHead`.
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
    };
    const appended = await this.raw.threads.rollbackThread(request, callOf(options));
    this.memory.forget(threadId);
    return {
      threadId: appended.ref?.threadId ?? "",
      checkpointId: appended.ref?.checkpointId ?? "",
      rolledBackFrom: appended.rolledBackFrom,
    };
  }

  /**
   * Return the threads that one descends from, and those that descend from it.
   *
   * @throws NotFound - There is no such thread.
   */
  async lineage(threadId: string, options: CallOptions = {}): Promise<ThreadLineage> {
    checkTexts({ threadId });
    return lineageOf(await this.raw.threads.getLineage({ threadId }, callOf(options)));
  }

  /**
   * Compare the states of two checkpoints, in the JSON view.
   *
   * @param threadId - The thread.
   * @param fromCheckpointId - The one side. The other is the latest, unless the options name one.
   * @throws NotFound - There is no such checkpoint.
   */
  async diff(threadId: string, fromCheckpointId: string, options: DiffOptions = {}): Promise<Diff> {
    const { checkpointNs, toCheckpointId, toThreadId = threadId, maxChanges = 0 } = options;
    const from = refOf(threadId, { checkpointNs, checkpointId: fromCheckpointId });
    const to = refOf(toThreadId, { checkpointNs, checkpointId: toCheckpointId });
    const request = comparing(from, to, maxChanges);
    return diffOf(await this.raw.threads.diffCheckpoints(request, callOf(options)));
  }

  /**
   * Read every stored checkpoint of a thread back from the blob store, and judge it.
   *
   * @throws NotFound - There is no such thread.
   * @throws Unavailable - The server went away meanwhile; verify again.
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
