/** The options of `Client`'s methods, and the results of changes. */

import type { CallOptions } from "../transport/connection.js";
import type { CheckpointVerdict } from "../messages/lineage.js";
import type { StateName } from "../messages/threads.js";
import type { DurabilityName, SourceName, ViewName } from "../messages/words.js";

/** Selects a checkpoint of a thread. */
export interface CheckpointOptions extends CallOptions {
  /** Default: the latest checkpoint. */
  readonly checkpointId?: string | undefined;
  /** The namespace of the thread. Default: the root. */
  readonly checkpointNs?: string | undefined;
}

/** Options of a change. */
export interface ChangeOptions extends CallOptions {
  /**
   * Durability that the call waits for: "journaled" (the default), or "certified" for the blob
   * store.
   */
  readonly durability?: DurabilityName | undefined;
}

/** Options of a save. */
export interface SaveOptions extends ChangeOptions {
  /** ID of the new checkpoint. Default: a UUIDv6 above the parent's ID. */
  readonly checkpointId?: string | undefined;
  /**
   * Parent of the new checkpoint; empty for none. Default: `expectedHead`, else the latest
   * checkpoint of the namespace at the moment of the save, which another agent may have saved.
   */
  readonly parentId?: string | undefined;
  /**
   * ID that the latest checkpoint must have, empty for none; otherwise nothing is saved. Protects
   * against two agents that drive one thread.
   */
  readonly expectedHead?: string | undefined;
  /** A JSON object to save with the checkpoint. */
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
  /** One sentence about what happened. */
  readonly summary?: string | undefined;
  /** A label for the checkpoint. */
  readonly label?: string | undefined;
  /** Name of the agent that drives the thread. */
  readonly agentId?: string | undefined;
  /** The namespace of the thread. Default: the root. */
  readonly checkpointNs?: string | undefined;
  /**
   * Vector with which `search` finds the checkpoint. All vectors have the same dimension. Default:
   * the vector sent before, or a vector that the server's embedder computes.
   */
  readonly vector?: ArrayLike<number> | undefined;
  /**
   * Whether search finds the thread's checkpoints, from this save on. Default: unchanged; a new
   * thread is searchable.
   */
  readonly searchable?: boolean | undefined;
}

/** The result of a save. */
export interface Saved {
  /** The checkpoint. */
  readonly checkpointId: string;
  /** Durability that the save reached; at least the requested one. */
  readonly durability: DurabilityName;
  /** Position of the change in the thread's sequence. */
  readonly seq: bigint;
}

/** How much of a checkpoint is loaded, and from where. */
export interface LoadOptions extends CheckpointOptions {
  /** How much to load. Default: "full". */
  readonly view?: ViewName | undefined;
  /** "any" (the default), or "blob" to read from the blob store itself. */
  readonly source?: SourceName | undefined;
}

/** Selects the checkpoints that are listed. */
export interface ListOptions extends CallOptions {
  /** Only this namespace; empty is the root. Default: all. */
  readonly checkpointNs?: string | undefined;
  /** Only this ID. Several threads may have the ID, because forks and copies keep IDs. */
  readonly checkpointId?: string | undefined;
  /** Only IDs below this one. */
  readonly before?: string | undefined;
  /** Only checkpoints whose metadata has all of these entries. */
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
  /** Only checkpoints with this label. */
  readonly label?: string | undefined;
  /** Most checkpoints to list. */
  readonly limit?: number | undefined;
  /** How much of each checkpoint to load. Default: "entry". */
  readonly view?: ViewName | undefined;
  /** "any" (the default), or "blob" to read from the blob store itself. */
  readonly source?: SourceName | undefined;
}

/** Selects the checkpoint to label. */
export interface LabelOptions extends CheckpointOptions, ChangeOptions {}

/** Selects the checkpoint to fork, and names the new thread. */
export interface ForkOptions extends CheckpointOptions, ChangeOptions {
  /** The thread to create. Default: the server generates a name. */
  readonly newThreadId?: string | undefined;
}

/** The result of a fork. */
export interface Fork {
  /** The new thread. */
  readonly newThreadId: string;
  /** First checkpoint of the new thread. */
  readonly checkpointId: string;
  /** The forked checkpoint, "thread:checkpoint". */
  readonly forkedFrom: string;
}

/** Options of a rollback. */
export interface RollbackOptions extends ChangeOptions {
  /** ID that the latest checkpoint must have; otherwise nothing is appended. */
  readonly expectedHead?: string | undefined;
  /** The namespace of the thread. Default: the root. */
  readonly checkpointNs?: string | undefined;
}

/** The result of a rollback. */
export interface Rollback {
  /** The thread. */
  readonly threadId: string;
  /** The appended checkpoint. */
  readonly checkpointId: string;
  /** The checkpoint that the thread was rolled back to, "thread:checkpoint". */
  readonly rolledBackFrom: string;
}

/** Selects the threads that are listed. */
export interface ThreadFilter extends CallOptions {
  /** Only threads that this agent drives. */
  readonly agentId?: string | undefined;
  /** Only threads that have a checkpoint with this label. */
  readonly label?: string | undefined;
  /** Only threads in this state. */
  readonly state?: StateName | undefined;
  /** Only threads with their last change at this time or later. */
  readonly changedAfter?: Date | undefined;
  /** Only threads with their last change before this time. */
  readonly changedBefore?: Date | undefined;
  /**
   * List by the time of the last change, latest first. A thread that changes during the listing may
   * be missing.
   */
  readonly latestFirst?: boolean | undefined;
}

/** Selects the checkpoint to hand off, and its receiver. */
export interface HandoffOptions extends CheckpointOptions {
  /** Name of the agent that may adopt the hand-off. */
  readonly toAgent?: string | undefined;
  /**
   * Put the key of a sealed blob into the descriptor, for a receiver whose server has other keys.
   * Everyone who has the descriptor can then read the checkpoint.
   */
  readonly includeKey?: boolean | undefined;
  /**
   * Seal the key to this public key of age (`age1...`), which the server info of the receiver's
   * server lists; only that server can then open the blob. The sender's server must seal the blobs
   * that it stores.
   */
  readonly recipient?: string | undefined;
  /**
   * Milliseconds after which the offer in the inbox of `toAgent` expires; the descriptor does not
   * expire. Default: never.
   */
  readonly expiresInMs?: number | undefined;
}

/**
 * What a pruned thread keeps: the latest checkpoint of each namespace and all data to rebuild it,
 * or nothing.
 */
export type KeepName = "latest" | "nothing";

/** Options of a prune. */
export interface PruneOptions extends ChangeOptions {
  /** Checkpoints that each thread keeps. Default: "latest". */
  readonly keep?: KeepName | undefined;
}

/** Selects the second side of a comparison. */
export interface DiffOptions extends CallOptions {
  /** Checkpoint of the second side. Default: the latest checkpoint. */
  readonly toCheckpointId?: string | undefined;
  /** Thread of the second side. Default: the same thread. */
  readonly toThreadId?: string | undefined;
  /** The namespace of both threads. Default: the root. */
  readonly checkpointNs?: string | undefined;
  /** Most changes to return. Default: 1,000. */
  readonly maxChanges?: number | undefined;
}

/** Options of a verification. */
export interface VerifyOptions extends CallOptions {
  /**
   * Called with the verdict on each checkpoint as it arrives. An error that it throws ends the
   * verification.
   */
  readonly onVerdict?: ((verdict: CheckpointVerdict) => void) | undefined;
}

/** Where an application runs; each field may be empty, or absent for all values. */
export interface SnapshotFilter extends CallOptions {
  /** Session of the application. */
  readonly sessionId?: string | undefined;
  /** Host that the application runs on. */
  readonly hostname?: string | undefined;
  /** Working directory of the application. */
  readonly workingDirectory?: string | undefined;
}

/** Options of a capture. */
export interface SnapshotOptions extends SnapshotFilter, ChangeOptions {
  /** A JSON object to save with the snapshot. */
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
}

/**
 * Restores a snapshot into a new thread for each member, or rolls each member's own thread back.
 */
export type RestoreModeName = "new_threads" | "rollback";

/** Options of a restore. */
export interface RestoreOptions extends ChangeOptions {
  /** How to restore. Default: "new_threads". */
  readonly mode?: RestoreModeName | undefined;
  /**
   * With the mode "rollback": skip members whose thread was deleted, instead of failing with
   * `NotFound`.
   */
  readonly skipDeleted?: boolean | undefined;
}
