/** The options of `Client`'s methods, and what changes return. */

import type { CallOptions } from "../transport/connection.js";
import type { CheckpointVerdict } from "../messages/lineage.js";
import type { StateName } from "../messages/threads.js";
import type { DurabilityName, SourceName, ViewName } from "../messages/words.js";

/** Which checkpoint of a thread. */
export interface CheckpointOptions extends CallOptions {
  /** Default: the latest. */
  readonly checkpointId?: string | undefined;
  /** The namespace inside the thread. Default: the root. */
  readonly checkpointNs?: string | undefined;
}

/** How safe a change has to be before the call returns. */
export interface ChangeOptions extends CallOptions {
  /** "journaled" (the default), or "certified" to wait for the blob store. */
  readonly durability?: DurabilityName | undefined;
}

/** How a checkpoint is saved. */
export interface SaveOptions extends ChangeOptions {
  /** The ID to give it. Default: a UUIDv6 above the parent's. */
  readonly checkpointId?: string | undefined;
  /**
   * The checkpoint to follow; empty for none. Default: `expectedHead`, else the latest of the
   * namespace at the moment of the save, which another agent may have saved.
   */
  readonly parentId?: string | undefined;
  /**
   * The ID that the latest must have, empty for none; otherwise nothing is saved. Guards against two
   * agents that drive one thread.
   */
  readonly expectedHead?: string | undefined;
  /** A JSON object to save with it. */
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
  /** One sentence about what happened. */
  readonly summary?: string | undefined;
  /** A name for it. */
  readonly label?: string | undefined;
  /** Name of the agent that drives the thread. */
  readonly agentId?: string | undefined;
  /** The namespace inside the thread. Default: the root. */
  readonly checkpointNs?: string | undefined;
  /**
   * The numbers by which `search` finds the checkpoint. All vectors have one dimension. Default: the
   * one sent before, or one that the server's embedder makes.
   */
  readonly vector?: ArrayLike<number> | undefined;
  /**
   * Whether search finds the thread's checkpoints, from this save on. Default: as before; a new
   * thread is searchable.
   */
  readonly searchable?: boolean | undefined;
}

/** What a save made. */
export interface Saved {
  /** The checkpoint. */
  readonly checkpointId: string;
  /** How safe it is; at least what was asked. */
  readonly durability: DurabilityName;
  /** Position of the change in the thread's sequence. */
  readonly seq: bigint;
}

/** What of a checkpoint is loaded, and from where. */
export interface LoadOptions extends CheckpointOptions {
  /** How much. Default: "full". */
  readonly view?: ViewName | undefined;
  /** "any" (the default), or "blob" to read from the blob store itself. */
  readonly source?: SourceName | undefined;
}

/** Which checkpoints are listed. */
export interface ListOptions extends CallOptions {
  /** Only this namespace; empty is the root. Default: all. */
  readonly checkpointNs?: string | undefined;
  /** Only this ID. Several threads may have it: forks and copies keep IDs. */
  readonly checkpointId?: string | undefined;
  /** Only IDs below this one. */
  readonly before?: string | undefined;
  /** Only checkpoints whose metadata has all of these. */
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
  /** Only checkpoints with this label. */
  readonly label?: string | undefined;
  /** At most this many. */
  readonly limit?: number | undefined;
  /** How much of each. Default: "entry". */
  readonly view?: ViewName | undefined;
  /** "any" (the default), or "blob" to read from the blob store itself. */
  readonly source?: SourceName | undefined;
}

/** Which checkpoint is labelled. */
export interface LabelOptions extends CheckpointOptions, ChangeOptions {}

/** Which checkpoint is forked, and to what. */
export interface ForkOptions extends CheckpointOptions, ChangeOptions {
  /** The thread to make. Default: the server makes a name. */
  readonly newThreadId?: string | undefined;
}

/** What a fork made. */
export interface Fork {
  /** The new thread. */
  readonly newThreadId: string;
  /** Its first checkpoint. */
  readonly checkpointId: string;
  /** What was forked, "thread:checkpoint". */
  readonly forkedFrom: string;
}

/** How a thread is rolled back. */
export interface RollbackOptions extends ChangeOptions {
  /** The ID that the latest must have; otherwise nothing is appended. */
  readonly expectedHead?: string | undefined;
  /** The namespace inside the thread. Default: the root. */
  readonly checkpointNs?: string | undefined;
}

/** What a rollback made. */
export interface Rollback {
  /** The thread. */
  readonly threadId: string;
  /** The checkpoint that was appended. */
  readonly checkpointId: string;
  /** What was rolled back to, "thread:checkpoint". */
  readonly rolledBackFrom: string;
}

/** Which threads are listed. */
export interface ThreadFilter extends CallOptions {
  /** Only threads that this agent drives. */
  readonly agentId?: string | undefined;
  /** Only threads that have a checkpoint with this label. */
  readonly label?: string | undefined;
  /** Only threads in this state. */
  readonly state?: StateName | undefined;
  /** Only threads that changed at this time or later. */
  readonly changedAfter?: Date | undefined;
  /** Only threads whose last change was earlier. */
  readonly changedBefore?: Date | undefined;
  /** List by the last change, the latest first. A thread that changes meanwhile may be missing. */
  readonly latestFirst?: boolean | undefined;
}

/** What is handed off, and to which agent. */
export interface HandoffOptions extends CheckpointOptions {
  /** Name of the agent it is meant for. */
  readonly toAgent?: string | undefined;
  /**
   * Put the key of a sealed blob into the descriptor, for a receiver whose server has other keys.
   * Whoever has the descriptor can read the checkpoint then.
   */
  readonly includeKey?: boolean | undefined;
  /**
   * Seal the key to this public key of age (`age1...`), which the description of the receiver's
   * server lists; only that server opens the blob then. The sender's server must seal what it
   * stores.
   */
  readonly recipient?: string | undefined;
}

/** What a pruned thread keeps: the latest of each namespace and what it is rebuilt from, or nothing. */
export type KeepName = "latest" | "nothing";

/** What is pruned. */
export interface PruneOptions extends ChangeOptions {
  /** What each thread keeps. Default: "latest". */
  readonly keep?: KeepName | undefined;
}

/** What is compared with a checkpoint. */
export interface DiffOptions extends CallOptions {
  /** The other side. Default: the latest. */
  readonly toCheckpointId?: string | undefined;
  /** Thread of the other side. Default: the same. */
  readonly toThreadId?: string | undefined;
  /** The namespace inside the threads. Default: the root. */
  readonly checkpointNs?: string | undefined;
  /** At most this many changes. Default: 1,000. */
  readonly maxChanges?: number | undefined;
}

/** How a thread is verified. */
export interface VerifyOptions extends CallOptions {
  /**
   * Is called with the verdict on each checkpoint, as it comes. What it throws ends the
   * verification.
   */
  readonly onVerdict?: ((verdict: CheckpointVerdict) => void) | undefined;
}

/** Where an application runs; each may be empty, or absent for all. */
export interface SnapshotFilter extends CallOptions {
  /** Session of the application. */
  readonly sessionId?: string | undefined;
  /** Host that it runs on. */
  readonly hostname?: string | undefined;
  /** Directory that it runs in. */
  readonly workingDirectory?: string | undefined;
}

/** What is saved with a snapshot. */
export interface SnapshotOptions extends SnapshotFilter, ChangeOptions {
  /** A JSON object to save with it. */
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
}

/**
 * How a snapshot is restored: a new thread of each member, or each member's own thread rolled back
 * to it.
 */
export type RestoreModeName = "new_threads" | "rollback";

/** How a snapshot is restored. */
export interface RestoreOptions extends ChangeOptions {
  /** Default: "new_threads". */
  readonly mode?: RestoreModeName | undefined;
  /**
   * With the mode "rollback": leave out members whose thread was deleted, instead of failing with
   * `NotFound`.
   */
  readonly skipDeleted?: boolean | undefined;
}
