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

/** What can happen on a thread. */
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
  | "recovered";

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
};

/** What of a thread's history is read. */
export interface HistoryOptions extends CallOptions {
  /** The namespace inside the thread. Default: the root. */
  readonly checkpointNs?: string | undefined;
  /** How much to return of each. Default: "entry". */
  readonly view?: ViewName | undefined;
}

/** What of a thread is replayed. */
export interface ReplayOptions extends CallOptions {
  /** Only this namespace; empty is the root. Default: all, by ID. */
  readonly checkpointNs?: string | undefined;
  /** First ID to yield. */
  readonly fromCheckpointId?: string | undefined;
  /** Last ID to yield. */
  readonly toCheckpointId?: string | undefined;
  /** How much to return of each. Default: "full". */
  readonly view?: ViewName | undefined;
  /** Default: "any". */
  readonly source?: SourceName | undefined;
}

/** What of a thread is watched. */
export interface WatchOptions extends CallOptions {
  /** Yield what came after this. Default: from the beginning of the thread's incarnation. */
  readonly cursor?: Uint8Array | undefined;
  /** Only these kinds. Default: all. */
  readonly kinds?: readonly EventName[] | undefined;
  /** How much to return of a checkpoint that was saved. Default: "full". */
  readonly view?: ViewName | undefined;
  /**
   * Milliseconds of silence, 1,000 or more, after which an event of the kind "progress" is yielded,
   * so that the caller has a newer cursor and a sign of life. Default: none is yielded.
   */
  readonly progressMs?: number | undefined;
  /** Without a cursor: yield only what happens after the call. */
  readonly fromNow?: boolean | undefined;
}

/** One change of a thread. */
export interface ThreadEvent {
  /**
   * What happened, or "progress": nothing did, and everything before was delivered. A kind that a
   * newer server has is its number.
   */
  readonly kind: EventName | "progress" | (string & {});
  /** Position after which a watch that is given it continues. */
  readonly cursor: Uint8Array;
  /**
   * Position in the thread's sequence, which rises by 1 from change to change; "certified" and
   * "progress" are no changes.
   */
  readonly seq: bigint;
  /** Incarnation of the thread. */
  readonly incarnation: bigint;
  /**
   * The checkpoint of the change, as it was when the event was delivered. One that no longer existed
   * has only its identity.
   */
  readonly checkpoint: CheckpointRecord | undefined;
  /** How many checkpoints a deletion took. */
  readonly deletedCheckpoints: bigint;
  /** Time of the change. */
  readonly time: Date | undefined;
  /** Whether nothing happened. */
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
