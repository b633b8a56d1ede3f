/** Replays and watches: the event record and the requests. */

import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";

import type { CallOptions } from "../transport/connection.js";
import { invalidField } from "../errors.js";
import {
  EventKind,
  ReplayThreadRequestSchema,
  WatchThreadRequestSchema,
  type ReplayThreadRequest,
  type ThreadEvent as EventMessage,
  type WatchThreadRequest,
} from "../gen/tuskpoint/v1/history_service_pb.js";
import { CheckpointRecord, moment } from "./records.js";
import { choice, nameOf, source, view, type SourceName, type ViewName } from "./words.js";

/** A kind of event on a thread. */
export type EventName =
  | "checkpoint_saved"
  | "writes_saved"
  | "label_set"
  | "checkpoints_deleted"
  | "thread_deleted"
  | "certified"
  | "retention_set"
  | "searchable_set"
  | "handed_off"
  | "recovered"
  | "effect_changed"
  | "lease_changed";

const KINDS: Readonly<Record<EventName, EventKind>> = {
  checkpoint_saved: EventKind.CHECKPOINT_SAVED,
  writes_saved: EventKind.WRITES_SAVED,
  label_set: EventKind.LABEL_SET,
  checkpoints_deleted: EventKind.CHECKPOINTS_DELETED,
  thread_deleted: EventKind.THREAD_DELETED,
  certified: EventKind.CERTIFIED,
  retention_set: EventKind.RETENTION_SET,
  searchable_set: EventKind.SEARCHABLE_SET,
  handed_off: EventKind.HANDED_OFF,
  recovered: EventKind.RECOVERED,
  effect_changed: EventKind.EFFECT_CHANGED,
  lease_changed: EventKind.LEASE_CHANGED,
};

/** Options of a history. */
export interface HistoryOptions extends CallOptions {
  /** The namespace of the thread. Default: the root. */
  readonly checkpointNs?: string | undefined;
  /** How much of each checkpoint to return. Default: "entry". */
  readonly view?: ViewName | undefined;
}

/** Options of a replay. */
export interface ReplayOptions extends CallOptions {
  /** Only this namespace; empty is the root. Default: all namespaces, by ID. */
  readonly checkpointNs?: string | undefined;
  /** First checkpoint ID to yield. */
  readonly fromCheckpointId?: string | undefined;
  /** Last checkpoint ID to yield. */
  readonly toCheckpointId?: string | undefined;
  /** How much of each checkpoint to return. Default: "full". */
  readonly view?: ViewName | undefined;
  /** Where the server reads from. Default: "any". */
  readonly source?: SourceName | undefined;
}

/** Options of a watch. */
export interface WatchOptions extends CallOptions {
  /** Yield the events after this cursor. Default: from the start of the thread's incarnation. */
  readonly cursor?: Uint8Array | undefined;
  /** Only these kinds of events. Default: all. */
  readonly kinds?: readonly EventName[] | undefined;
  /**
   * How much of a saved checkpoint to return. Default: "full". With "step", events of other kinds
   * have the step of their checkpoint too.
   */
  readonly view?: ViewName | undefined;
  /**
   * Milliseconds of silence, 1,000 or more, after which an event of the kind "progress" is yielded,
   * so that the caller has a newer cursor and a sign of life. Default: no such event is yielded.
   */
  readonly progressMs?: number | undefined;
  /** Without a cursor: yield only changes after the call. */
  readonly fromNow?: boolean | undefined;
}

/** One change of a thread. */
export interface ThreadEvent {
  /**
   * Kind of the change, or "progress": no change happened, and all earlier events were delivered. A
   * kind that only a newer server knows is its number.
   */
  readonly kind: EventName | "progress" | (string & {});
  /** Position after which a watch with this cursor continues. */
  readonly cursor: Uint8Array;
  /**
   * Position in the thread's sequence, which rises by 1 with each change; "certified" and
   * "progress" are not changes.
   */
  readonly seq: bigint;
  /** Incarnation of the thread. */
  readonly incarnation: bigint;
  /**
   * The changed checkpoint, in its state at delivery. A checkpoint that no longer existed has only
   * its identity.
   */
  readonly checkpoint: CheckpointRecord | undefined;
  /** Number of checkpoints that a deletion removed. */
  readonly deletedCheckpoints: bigint;
  /** Time of the change. */
  readonly time: Date | undefined;
  /** Whether the event is of the kind "progress". */
  readonly isProgress: boolean;
}

/** Return a complete event message (every value inline) as a record. */
export function threadEvent(message: EventMessage): ThreadEvent {
  return {
    kind: nameOf(EventKind, message.kind),
    cursor: message.cursor,
    seq: message.seq,
    incarnation: message.incarnation,
    checkpoint: message.checkpoint && new CheckpointRecord(message.checkpoint),
    deletedCheckpoints: message.deletedCheckpoints,
    time: moment(message.time),
    isProgress: message.kind === EventKind.PROGRESS,
  };
}

/** Return the request of a replay. */
export function replaying(threadId: string, options: ReplayOptions): ReplayThreadRequest {
  const { checkpointNs, fromCheckpointId = "", toCheckpointId = "" } = options;
  return create(ReplayThreadRequestSchema, {
    threadId,
    ...(checkpointNs === undefined ? {} : { checkpointNs }),
    fromCheckpointId,
    toCheckpointId,
    view: view(options.view),
    source: source(options.source),
  });
}

/**
 * Return the request of a watch.
 *
 * @throws InvalidRequest - A kind or a view does not exist, or `progressMs` is less than 1,000.
 */
export function watching(threadId: string, options: WatchOptions): WatchThreadRequest {
  const { cursor = new Uint8Array(), kinds, progressMs } = options;
  if (kinds?.length === 0) {
    throw invalidField("kinds", "it must name at least one kind, or be left out");
  }
  if (progressMs !== undefined && !(progressMs >= 1_000 && progressMs < 2 ** 31)) {
    throw invalidField("progressMs", `it must be 1,000 milliseconds or more, not ${progressMs}`);
  }
  return create(WatchThreadRequestSchema, {
    threadId,
    cursor,
    kinds: (kinds ?? []).map((kind) => choice("kinds", kind, KINDS)),
    view: view(options.view),
    fromNow: options.fromNow ?? false,
    ...(progressMs === undefined ? {} : { progressInterval: durationFromMs(progressMs) }),
  });
}
