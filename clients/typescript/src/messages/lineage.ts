/** Ancestry, differences and verification: the records. Pure. */

import { create } from "@bufbuild/protobuf";

import { invalidField, ServerError } from "../errors.js";
import {
  ChangeKind,
  DiffCheckpointsRequestSchema,
  LineageKind,
  Verdict,
  type CheckpointVerdict as VerdictMessage,
  type DiffCheckpointsRequest,
  type DiffCheckpointsResponse,
  type GetLineageResponse,
  type LineageStep as StepMessage,
  type VerificationTotal,
} from "../gen/tuskpoint/v1/thread_service_pb.js";
import { locationOf, moment, referenceOf, type Location, type Reference } from "./records.js";

/** Kind of a step from one checkpoint to its descendant. */
export type DescentName = "fork" | "adoption" | "rollback";

/**
 * How two checkpoints differ at one path: only the second has the value, only the first, or both.
 */
export type ChangeName = "added" | "removed" | "changed";

/**
 * Result of reading a stored checkpoint back: "pass" (the stored bytes match the recorded hash),
 * "fail" (the bytes differ or are missing), "unverified" (the last change of the checkpoint is not
 * certified) or "retracted" (the checkpoint was deleted).
 */
export type VerdictName = "pass" | "fail" | "unverified" | "retracted";

const DESCENTS: Readonly<Partial<Record<LineageKind, DescentName>>> = {
  [LineageKind.FORK]: "fork",
  [LineageKind.ADOPTION]: "adoption",
  [LineageKind.ROLLBACK]: "rollback",
};

const CHANGES: Readonly<Partial<Record<ChangeKind, ChangeName>>> = {
  [ChangeKind.ADDED]: "added",
  [ChangeKind.REMOVED]: "removed",
};

const VERDICTS: Readonly<Partial<Record<Verdict, VerdictName>>> = {
  [Verdict.PASS]: "pass",
  [Verdict.FAIL]: "fail",
  [Verdict.RETRACTED]: "retracted",
};

const MAX_CHANGES = 2 ** 32 - 1;

/** A step from one checkpoint to a checkpoint that descends from it. */
export interface LineageStep {
  /** Kind of the step. */
  readonly kind: DescentName;
  /**
   * The forked, adopted or rolled-back-to checkpoint. The origin of an adoption may be on another
   * server.
   */
  readonly origin: Reference;
  /** The new checkpoint. */
  readonly result: Reference;
  /** Time at which the new checkpoint was created. */
  readonly created: Date | undefined;
}

/** The ancestors and descendants of a thread. */
export interface ThreadLineage {
  /** The steps from the oldest known ancestor to the thread, oldest first. */
  readonly ancestors: readonly LineageStep[];
  /** The steps that start in the thread or in its descendants, nearest first. */
  readonly descendants: readonly LineageStep[];
  /** Whether more descendants exist than were returned. */
  readonly truncated: boolean;
}

/** One difference between two checkpoints. */
export interface Change {
  /** Kind of the difference. */
  readonly kind: ChangeName;
  /** The channel. */
  readonly channel: string;
  /** JSON Pointer (RFC 6901) inside the channel's JSON view; empty means the whole value. */
  readonly path: string;
  /** JSON view of the first value, cut at 4,096 bytes; `undefined` if added. */
  readonly fromJson: string | undefined;
  /** JSON view of the second value, cut at 4,096 bytes; `undefined` if removed. */
  readonly toJson: string | undefined;
}

/** The differences between the states of two checkpoints. */
export interface Diff {
  /** The changes, by channel and path. */
  readonly changes: readonly Change[];
  /** Whether more changes exist than were returned. */
  readonly truncated: boolean;
}

/** Result of reading a stored checkpoint back. */
export interface CheckpointVerdict {
  /** The namespace. */
  readonly checkpointNs: string;
  /** The checkpoint. */
  readonly checkpointId: string;
  /** The verdict. */
  readonly verdict: VerdictName;
  /**
   * Location of the stored bytes, with the recorded hash; `undefined` if the checkpoint is not
   * stored.
   */
  readonly location: Location | undefined;
  /** SHA-256 of the stored bytes, as lowercase hex; empty if the bytes are missing. */
  readonly actualSha256: string;
  /** Reason of the failure, for people. */
  readonly detail: string;
}

/** Result of reading a whole thread back from the blob store. */
export interface Verification {
  /**
   * Whether at least one checkpoint passed, none failed, the newest catalog leads to the recorded
   * checkpoints, and nothing is wrong in the journal.
   */
  readonly ok: boolean;
  /** Number of checkpoints that passed. */
  readonly passed: bigint;
  /** Number of checkpoints that failed. */
  readonly failed: bigint;
  /** Number of checkpoints that are not certified. */
  readonly unverified: bigint;
  /** Number of checkpoints that were deleted. */
  readonly retracted: bigint;
  /**
   * Problem of the chain from the catalog to the segments, for people; empty if the chain is
   * intact.
   */
  readonly chainDetail: string;
  /**
   * Problems of the thread's rows and values in the server's journal, for people, one sentence
   * each; at most 100.
   */
  readonly journalDetails: readonly string[];
  /** The verdicts on the failed checkpoints. */
  readonly failures: readonly CheckpointVerdict[];
}

/** Return a lineage as a record, without steps of a kind that only a newer server knows. */
export function lineageOf(message: GetLineageResponse): ThreadLineage {
  return {
    ancestors: message.ancestors.flatMap(stepsOf),
    descendants: message.descendants.flatMap(stepsOf),
    truncated: message.truncated,
  };
}

/**
 * Return the request that compares two checkpoints.
 *
 * @throws InvalidRequest - `maxChanges` is not a number of changes.
 */
export function comparing(
  from: Reference,
  to: Reference,
  maxChanges: number,
): DiffCheckpointsRequest {
  if (!(Number.isInteger(maxChanges) && maxChanges >= 0 && maxChanges <= MAX_CHANGES)) {
    throw invalidField("maxChanges", `it must be a whole number, 0 or more, not ${maxChanges}`);
  }
  return create(DiffCheckpointsRequestSchema, { from, to, maxChanges });
}

/** Return a comparison as a record. */
export function diffOf(message: DiffCheckpointsResponse): Diff {
  const changes = message.changes.map(({ kind, channel, path, fromJson, toJson }) => ({
    kind: CHANGES[kind] ?? "changed",
    channel,
    path,
    fromJson,
    toJson,
  }));
  return { changes, truncated: message.truncated };
}

/** Return a verdict as a record. A verdict that only a newer server knows proves nothing. */
export function verdictOf(message: VerdictMessage): CheckpointVerdict {
  return {
    checkpointNs: message.ref?.checkpointNs ?? "",
    checkpointId: message.ref?.checkpointId ?? "",
    verdict: VERDICTS[message.verdict] ?? "unverified",
    location: locationOf(message.location),
    actualSha256: Buffer.from(message.actualSha256).toString("hex"),
    detail: message.detail,
  };
}

/**
 * Return the result of a verification.
 *
 * @throws ServerError - The stream ended without a total.
 */
export function verificationOf(
  total: VerificationTotal | undefined,
  failures: readonly CheckpointVerdict[],
): Verification {
  if (total === undefined) {
    throw new ServerError("the server's stream ended without a total", { status: "INTERNAL" });
  }
  const { ok, passed, failed, unverified, retracted, chainDetail, journalDetails } = total;
  return {
    ok,
    passed,
    failed,
    unverified,
    retracted,
    chainDetail,
    journalDetails,
    failures,
  };
}

function stepsOf(message: StepMessage): LineageStep[] {
  const kind = DESCENTS[message.kind];
  if (kind === undefined) {
    return [];
  }
  const origin = referenceOf(message.from);
  return [{ kind, origin, result: referenceOf(message.to), created: moment(message.createTime) }];
}
