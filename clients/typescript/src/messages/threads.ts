/** Records about threads, the archive and the server. */

import { durationMs, type Duration } from "@bufbuild/protobuf/wkt";

import type {
  ClockJump as ClockJumpMessage,
  GetArchiveStatusResponse,
  GetServerInfoResponse,
  SearchStatus,
  ServerLimits,
} from "../gen/tuskpoint/v1/admin_service_pb.js";
import type { ManifestEntry } from "../gen/tuskpoint/v1/manifest_pb.js";
import type { Lease } from "../gen/tuskpoint/v1/lease_pb.js";
import { SearchMode } from "../gen/tuskpoint/v1/search_service_pb.js";
import { ThreadState, type Thread as ThreadMessage } from "../gen/tuskpoint/v1/thread_pb.js";
import { locationOf, moment, originsOf, type Lineage, type Location } from "./records.js";
import { failureOf, questionOf, type Failure, type Question } from "./steps.js";
import { nameOf } from "./words.js";

/** Whether a thread waits: for nothing, for an answer, or for someone who examines its error. */
export type StateName = "idle" | "interrupted" | "failed";

/** The enum value of each state. */
export const THREAD_STATES: Readonly<Record<StateName, ThreadState>> = {
  idle: ThreadState.IDLE,
  interrupted: ThreadState.INTERRUPTED,
  failed: ThreadState.FAILED,
};

/** One agent run. */
export interface ThreadRecord {
  /** The thread. */
  readonly threadId: string;
  /** Number of times that the thread was started, from 1. */
  readonly incarnation: bigint;
  /** The agent that drives the thread; empty if none was named. */
  readonly agentId: string;
  /** State of the thread. */
  readonly state: StateName | (string & {});
  /** Latest checkpoint of the root namespace; empty if the namespace has none. */
  readonly headCheckpointId: string;
  /** Time of the first change of this incarnation. */
  readonly created: Date | undefined;
  /** Time of the last change. */
  readonly updated: Date | undefined;
  /**
   * Earliest time at which a blob of the thread may expire unless it is renewed. Not in a listing.
   */
  readonly expires: Date | undefined;
  /**
   * Milliseconds without a change after which the thread is deleted; `undefined` keeps the thread.
   */
  readonly retentionMs: number | undefined;
  /** Whether search finds the thread's checkpoints. */
  readonly searchable: boolean;
  /** Latest checkpoint of each namespace. Empty in a listing. */
  readonly heads: ReadonlyMap<string, string>;
  /** Number of the thread's checkpoints in all namespaces. */
  readonly checkpointCount: bigint;
  /** Number of the thread's checkpoints that are not certified; 0 in a listing. */
  readonly uncertifiedCount: bigint;
  /** Summary of the latest checkpoint; empty if the checkpoint has none. */
  readonly summary: string;
  /** First open question of the latest checkpoint, if the thread is interrupted. */
  readonly question: Question | undefined;
  /** First failure of the latest checkpoint, if the thread failed. */
  readonly failure: Failure | undefined;
  /** Lease of the thread's driver, without its ID, if a lease holds. */
  readonly lease: LeaseRecord | undefined;
}

/** The right to change a thread. */
export interface LeaseRecord {
  /** The thread. */
  readonly threadId: string;
  /** ID of the lease; empty in the description of a thread: only the holder knows the ID. */
  readonly leaseId: string;
  /** Number that is greater than the fences of all earlier leases of the thread. */
  readonly fence: bigint;
  /** Name of the driver. */
  readonly owner: string;
  /** Whether changes without the lease are accepted. */
  readonly advisory: boolean;
  /** Time at which the lease ends unless it is extended. */
  readonly expires: Date | undefined;
  /** Time of the acquisition. */
  readonly acquired: Date | undefined;
  /** Milliseconds from an extension to the end. */
  readonly ttlMs: number;
}

/** A stored checkpoint as the manifest of its thread lists it. */
export interface ManifestRecord {
  /** The namespace. */
  readonly checkpointNs: string;
  /** The checkpoint. */
  readonly checkpointId: string;
  /** Parent of the checkpoint; empty at the root. */
  readonly parentCheckpointId: string;
  /** Position of the stored change, the last change of the checkpoint and its writes. */
  readonly seq: bigint;
  /** The segment that contains the checkpoint. */
  readonly segment: Location | undefined;
  /** Hash of the stored bytes of the checkpoint's state, as lowercase hex. */
  readonly stateSha256: string;
  /** The segments that contain the checkpoint's pending writes, in the order of the log. */
  readonly writes: readonly Location[];
  /** One sentence about what happened. */
  readonly summary: string;
  /** Label of the checkpoint; empty without a label. */
  readonly label: string;
  /** Origins of the checkpoint besides its parent. */
  readonly lineage: Lineage;
  /** Time of the first save. */
  readonly created: Date | undefined;
}

/**
 * The state of the archive. Sizes are in bytes; a time is `undefined` if its event has not
 * happened.
 */
export interface ArchiveStatus {
  /** Checkpoints that are not certified. */
  readonly backlogCheckpoints: bigint;
  /** Bytes that wait for certification. */
  readonly backlogBytes: bigint;
  /** Time of the oldest change that is not certified. */
  readonly oldestUncertified: Date | undefined;
  /** The archive's last error; empty since its last success. */
  readonly lastError: string;
  /** Time of the last error. */
  readonly lastErrorTime: Date | undefined;
  /** Time of the last flush that certified a change. */
  readonly lastFlush: Date | undefined;
  /** The newest catalog, from which an empty server can be rebuilt. */
  readonly catalog: Location | undefined;
  /** Size of the journal's database; 0 for callers without the right to administer. */
  readonly journalBytes: bigint;
  /** Bytes that are packed and not yet certified; 0 for callers without the right to administer. */
  readonly spoolBytes: bigint;
  /** Size of the local cache; 0 for callers without the right to administer. */
  readonly cacheBytes: bigint;
  /** Number of certified checkpoints. */
  readonly certifiedCheckpoints: bigint;
  /** Earliest time at which a needed blob may expire unless it is renewed. */
  readonly earliestExpiry: Date | undefined;
  /** Bytes of values and writes that are only in the blob store. */
  readonly evictedBytes: bigint;
  /** Number of blobs that were stored and have not expired. */
  readonly storedBlobs: bigint;
  /** Price that the blob store billed for those blobs, over all puts. */
  readonly billedBytes: bigint;
  /** Price of those puts in FROST (1 WAL is 1,000,000,000 FROST), without gas. */
  readonly cost: bigint;
  /** Number of blobs that are due for renewal and whose last renewal failed. */
  readonly failingRenewals: number;
  /** Time at which the scrub last completed a pass over all threads of the journal. */
  readonly scrubbed: Date | undefined;
  /** Threads in which the scrub found damage that it could not repair; at most 100. */
  readonly damagedThreads: readonly string[];
  /** The state of the search index, as in the contract; `undefined` without an index. */
  readonly search: SearchStatus | undefined;
}

/** Description of the server. */
export interface ServerInfo {
  /** Version of the server. */
  readonly version: string;
  /** Full names of the implemented methods. */
  readonly methods: readonly string[];
  /** Limits of the server, as in the contract. */
  readonly limits: ServerLimits | undefined;
  /** Kind of journal. */
  readonly journalBackend: string;
  /** Kind of blob store. */
  readonly blobBackend: string;
  /** Identity of the journal. */
  readonly journalId: string;
  /** Time at which the server started. */
  readonly started: Date | undefined;
  /** Modes of text search; empty if the server does not index. */
  readonly searchModes: readonly string[];
  /** Name of the embedder that computes vectors of text; empty without an embedder. */
  readonly embedder: string;
  /**
   * Public keys that sign the server's hand-offs, as lowercase hex; the first one signs new
   * hand-offs.
   */
  readonly signers: readonly string[];
  /**
   * Public keys of age that hand-offs for this tenant can be sealed to; use the first. Empty if the
   * server has no identity.
   */
  readonly recipients: readonly string[];
  /** Step of the server's clock that stops deletions until `acceptClock`, if any. */
  readonly clockJump: ClockJump | undefined;
  /**
   * TCP port on which the server listens for gRPC; 0 if an older server does not tell. A proxy in
   * front of the server can have another port.
   */
  readonly grpcPort: number;
}

/** A step of the server's clock that the journal does not follow. */
export interface ClockJump {
  /** Time that the journal expects. */
  readonly expected: Date | undefined;
  /** Time of the clock. */
  readonly clock: Date | undefined;
}

/** Result of a flush. */
export interface Flushed {
  /** Number of checkpoints that the flush certified. */
  readonly certifiedCheckpoints: bigint;
  /** The newest catalog. */
  readonly catalog: Location | undefined;
}

/** Return a thread as a record. */
export function threadRecord(message: ThreadMessage): ThreadRecord {
  return {
    threadId: message.threadId,
    incarnation: message.incarnation,
    agentId: message.agentId,
    state: nameOf(ThreadState, message.state),
    headCheckpointId: message.headCheckpointId,
    created: moment(message.createTime),
    updated: moment(message.updateTime),
    expires: moment(message.expireTime),
    retentionMs: milliseconds(message.retention),
    searchable: !message.unsearchable,
    heads: new Map(message.heads.map((one) => [one.checkpointNs, one.checkpointId])),
    checkpointCount: message.checkpointCount,
    uncertifiedCount: message.uncertifiedCount,
    summary: message.summary,
    question: message.question && questionOf(message.question),
    failure: message.failure && failureOf(message.failure),
    lease: message.lease && leaseRecord(message.lease),
  };
}

/** Return a lease as a record. */
export function leaseRecord(message: Lease): LeaseRecord {
  const { threadId, leaseId, fence, owner, advisory } = message;
  return {
    threadId,
    leaseId,
    fence,
    owner,
    advisory,
    expires: moment(message.expireTime),
    acquired: moment(message.acquireTime),
    ttlMs: message.ttl === undefined ? 0 : durationMs(message.ttl),
  };
}

/** Return an entry of a manifest as a record. */
export function manifestRecord(message: ManifestEntry): ManifestRecord {
  const { checkpointNs, checkpointId, parentCheckpointId, seq, summary, label } = message;
  return {
    checkpointNs,
    checkpointId,
    parentCheckpointId,
    seq,
    segment: locationOf(message.segment),
    stateSha256: Buffer.from(message.stateSha256).toString("hex"),
    writes: message.writes.map((one) => locationOf(one)),
    summary,
    label,
    lineage: originsOf(message.lineage),
    created: moment(message.createTime),
  };
}

/** Return the state of the archive as a record. */
export function archiveStatus(message: GetArchiveStatusResponse): ArchiveStatus {
  return {
    backlogCheckpoints: message.backlogCheckpoints,
    backlogBytes: message.backlogBytes,
    oldestUncertified: moment(message.oldestUncertifiedTime),
    lastError: message.lastError,
    lastErrorTime: moment(message.lastErrorTime),
    lastFlush: moment(message.lastFlushTime),
    catalog: locationOf(message.catalog),
    journalBytes: message.journalBytes,
    spoolBytes: message.spoolBytes,
    cacheBytes: message.cacheBytes,
    certifiedCheckpoints: message.certifiedCheckpoints,
    earliestExpiry: moment(message.earliestExpireTime),
    evictedBytes: message.evictedBytes,
    storedBlobs: message.storedBlobs,
    billedBytes: message.billedBytes,
    cost: message.cost,
    failingRenewals: message.failingRenewals,
    scrubbed: moment(message.scrubTime),
    damagedThreads: message.damagedThreadIds,
    search: message.search,
  };
}

/** Return the description of the server as a record. */
export function serverInfo(message: GetServerInfoResponse): ServerInfo {
  return {
    version: message.version,
    methods: message.methods,
    limits: message.limits,
    journalBackend: message.journalBackend,
    blobBackend: message.blobBackend,
    journalId: message.journalId,
    started: moment(message.startTime),
    searchModes: message.searchModes.map((mode) => nameOf(SearchMode, mode)),
    embedder: message.embedder,
    signers: message.signers,
    recipients: message.recipients,
    clockJump: clockJump(message.clockJump),
    grpcPort: message.grpcPort,
  };
}

/** Return a step of the clock as a record; `undefined` without a step. */
export function clockJump(message: ClockJumpMessage | undefined): ClockJump | undefined {
  return message && { expected: moment(message.expectedTime), clock: moment(message.clockTime) };
}

function milliseconds(duration: Duration | undefined): number | undefined {
  return duration === undefined ? undefined : durationMs(duration);
}
