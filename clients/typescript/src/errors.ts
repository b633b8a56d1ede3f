/**
 * The errors of the client: one class for each reaction of a caller.
 *
 * The reason of an error decides its class; where the reason does not decide or is absent, the
 * canonical status decides. The message text never decides.
 */

import type { ErrorReason } from "./gen/tuskpoint/v1/errors_pb.js";
import type { EffectRecord } from "./client/effects/records.js";

/** Name of a canonical gRPC status (grpc.io/docs/guides/status-codes), except `OK`. */
export type StatusName =
  | "CANCELLED"
  | "UNKNOWN"
  | "INVALID_ARGUMENT"
  | "DEADLINE_EXCEEDED"
  | "NOT_FOUND"
  | "ALREADY_EXISTS"
  | "PERMISSION_DENIED"
  | "RESOURCE_EXHAUSTED"
  | "FAILED_PRECONDITION"
  | "ABORTED"
  | "OUT_OF_RANGE"
  | "UNIMPLEMENTED"
  | "INTERNAL"
  | "UNAVAILABLE"
  | "DATA_LOSS"
  | "UNAUTHENTICATED";

/** A refused field of a request. */
export interface FieldViolation {
  /** Path of the field, such as "checkpoint.ref.thread_id". */
  readonly field: string;
  /** The problem, and the accepted values. */
  readonly problem: string;
}

/** The parts of an error besides its message. */
export interface ErrorDetails {
  /** Default: "UNKNOWN". */
  readonly status?: StatusName;
  /** Default: none. */
  readonly reason?: string;
  /** Default: none. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** Default: none. */
  readonly violations?: readonly FieldViolation[];
  /** Default: none. */
  readonly retryAfterMs?: number | undefined;
  /** Error that caused this error, if any. */
  readonly cause?: unknown;
}

/** A call failed, or could not be made. */
export class TuskPointError extends Error {
  /** Name of the canonical gRPC status. */
  readonly status: StatusName;
  /**
   * Name of the `tuskpoint.v1.ErrorReason` without its prefix, such as "CHECKPOINT_NOT_FOUND";
   * empty if the service gave no reason.
   */
  readonly reason: string;
  /** The dynamic parts of the message. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The refused fields; for `ValuesMissing`, the channels. */
  readonly violations: readonly FieldViolation[];
  /**
   * Milliseconds after which the service asks for a retry; `undefined` if it does not ask for one.
   */
  readonly retryAfterMs: number | undefined;

  /**
   * @param message - Text for people: what happened and what to do.
   * @param details - Parts that programs decide by.
   */
  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.status = details.status ?? "UNKNOWN";
    this.reason = details.reason ?? "";
    this.metadata = Object.freeze({ ...details.metadata });
    this.violations = Object.freeze([...(details.violations ?? [])]);
    this.retryAfterMs = details.retryAfterMs;
  }
}

/** The request can never succeed unchanged: change the request. */
export class InvalidRequest extends TuskPointError {}

/** The value is not the descriptor of a hand-off: pass the whole, unchanged descriptor. */
export class InvalidDescriptor extends InvalidRequest {}

/**
 * The descriptor names a checkpoint that its blob does not contain: ask for the original
 * descriptor.
 */
export class DescriptorMismatch extends InvalidRequest {
  /** The key of the descriptor that differs. */
  get field(): string {
    return this.metadata["field"] ?? "";
  }

  /** The value in the descriptor. */
  get claimed(): string {
    return this.metadata["claimed"] ?? "";
  }

  /** The value in the blob. */
  get found(): string {
    return this.metadata["found"] ?? "";
  }
}

/** The events after the cursor were compacted: replay, then watch from `oldestCursor`. */
export class CursorCompacted extends InvalidRequest {
  /** The oldest cursor that a watch can start with; empty if the service named none. */
  get oldestCursor(): Uint8Array {
    return new Uint8Array(Buffer.from(this.metadata["oldest_cursor"] ?? "", "base64"));
  }
}

/** The named thread, checkpoint, snapshot or blob does not exist. */
export class NotFound extends TuskPointError {}

/** The object to create exists: choose another name, or a new request ID. */
export class AlreadyExists extends TuskPointError {}

/** Another agent changed the thread: load its head and decide again. */
export class Conflict extends TuskPointError {}

/** Another driver has the lease of the thread: wait for its end, or take the thread over. */
export class ThreadBusy extends Conflict {
  /** Name of the driver; empty if the service named none. */
  get owner(): string {
    return this.metadata["owner"] ?? "";
  }
}

/** The thread was deleted: restart the thread with a checkpoint that has no parent. */
export class ThreadDeleted extends TuskPointError {}

/**
 * The service is not in the state that the call needs; the reason, or the message, names the state.
 */
export class PreconditionFailed extends TuskPointError {}

/** The lease of the thread has ended: stop the run, because another driver may have begun. */
export class LeaseLost extends PreconditionFailed {
  /** The lease that has ended. */
  get leaseId(): string {
    return this.metadata["lease_id"] ?? "";
  }

  /** Name of the driver that has the thread now; empty if no lease holds. */
  get owner(): string {
    return this.metadata["owner"] ?? "";
  }
}

/** The parts of an `EffectError` besides its message. */
export interface EffectErrorDetails extends ErrorDetails {
  /** Default: none. */
  readonly effect?: EffectRecord | undefined;
}

/** The work of an effect must not be done now. */
export class EffectError extends PreconditionFailed {
  /** The recorded effect; `undefined` if the service refused the call. */
  readonly effect: EffectRecord | undefined;

  /**
   * @param message - Text for people: what happened and what to do.
   * @param details - Parts that programs decide by.
   */
  constructor(message: string, details: EffectErrorDetails = {}) {
    super(message, details);
    this.effect = details.effect;
  }
}

/** An attempt began and did not report: find out whether the work was done, then decide. */
export class EffectUnknown extends EffectError {}

/** Another attempt runs and did not report in the time to wait: wait longer. */
export class EffectRunning extends EffectError {}

/** The attempt reported that the work was not done: try again. */
export class EffectNotDone extends EffectError {}

/** The attempt reported that the work was refused: another attempt makes no sense. */
export class EffectRefused extends EffectError {}

/** The effect was begun with another input: use another key for other work. */
export class EffectInputChanged extends EffectError {}

/** The effect is not unknown, or a later attempt has begun: read the effect again. */
export class EffectNotUnknown extends EffectError {}

/** The thread only answers recorded effects, and none matches: do not do the work. */
export class EffectNotRecorded extends EffectError {}

/** The service does not have content that the request refers to: send the content inline. */
export class ValuesMissing extends TuskPointError {
  /** The channels whose content is missing. */
  get channels(): readonly string[] {
    return this.violations.map((violation) => violation.field);
  }
}

/** Stored bytes are lost or do not match the record. Nothing was read or written. */
export class DataLoss extends TuskPointError {}

/** Stored bytes do not match their recorded hash: never use the bytes. */
export class HashMismatch extends DataLoss {
  /** ID of the blob. */
  get blobId(): string {
    return this.metadata["blob_id"] ?? "";
  }

  /** The recorded SHA-256, as lowercase hex. */
  get expected(): string {
    return this.metadata["expected"] ?? "";
  }

  /** The SHA-256 of the stored bytes, as lowercase hex. */
  get actual(): string {
    return this.metadata["actual"] ?? "";
  }
}

/**
 * The request is too large, or there are too many requests: send less, or wait if `retryAfterMs` is
 * set.
 */
export class ResourceExhausted extends TuskPointError {}

/** The service, or the store behind it, does not answer: retry later. */
export class Unavailable extends TuskPointError {}

/** The deadline of the call passed. It is unknown whether the change was applied. */
export class DeadlineExceeded extends TuskPointError {}

/** The credential is missing, or unknown to the service. */
export class Unauthenticated extends TuskPointError {}

/** The credential does not allow the call. */
export class PermissionDenied extends TuskPointError {}

/** The server does not implement the call: use a newer server. */
export class Unimplemented extends TuskPointError {}

/** The server has a defect, or its answer breaks the contract: report it. */
export class ServerError extends TuskPointError {}

/** The value has an encoding that only the framework which saved the value can read. */
export class UnreadableValue extends TuskPointError {}

/** A class of errors. */
export type ErrorClass = new (message: string, details?: ErrorDetails) => TuskPointError;

/** Name of an `ErrorReason`, without its prefix. */
export type ReasonName = Exclude<keyof typeof ErrorReason, "UNSPECIFIED">;

/** Class of each canonical status. */
export const BY_STATUS: Readonly<Record<StatusName, ErrorClass>> = {
  CANCELLED: Unavailable,
  UNKNOWN: ServerError,
  INVALID_ARGUMENT: InvalidRequest,
  DEADLINE_EXCEEDED: DeadlineExceeded,
  NOT_FOUND: NotFound,
  ALREADY_EXISTS: AlreadyExists,
  PERMISSION_DENIED: PermissionDenied,
  RESOURCE_EXHAUSTED: ResourceExhausted,
  FAILED_PRECONDITION: PreconditionFailed,
  ABORTED: Conflict,
  OUT_OF_RANGE: InvalidRequest,
  UNIMPLEMENTED: Unimplemented,
  INTERNAL: ServerError,
  UNAVAILABLE: Unavailable,
  DATA_LOSS: DataLoss,
  UNAUTHENTICATED: Unauthenticated,
};

/** Class of each reason; `null` where the contract lets the status decide. */
export const BY_REASON: Readonly<Record<ReasonName, ErrorClass | null>> = {
  INVALID_FIELD: InvalidRequest,
  METADATA_NOT_JSON: InvalidRequest,
  DIGEST_MISMATCH: InvalidRequest,
  VERSION_TYPE_CHANGED: InvalidRequest,
  CHUNK_OUT_OF_ORDER: InvalidRequest,
  STREAM_TRUNCATED: InvalidRequest,
  LIMIT_EXCEEDED: ResourceExhausted,
  CHECKPOINT_NOT_FOUND: NotFound,
  THREAD_NOT_FOUND: NotFound,
  THREAD_DELETED: ThreadDeleted,
  THREAD_EXISTS: AlreadyExists,
  VALUES_MISSING: ValuesMissing,
  HEAD_MOVED: Conflict,
  SESSION_RESUMED: Unavailable,
  KEY_MISSING: PreconditionFailed,
  KEY_WRONG: DataLoss,
  KEY_PROVIDER_UNAVAILABLE: Unavailable,
  CHECKPOINT_MISSING: NotFound,
  CHECKPOINT_TOO_LARGE: PreconditionFailed,
  NOT_CERTIFIED: PreconditionFailed,
  BLOB_HASH_MISMATCH: HashMismatch,
  BLOB_NOT_FOUND: null,
  BLOB_UNAVAILABLE: Unavailable,
  BLOB_MALFORMED: DataLoss,
  JOURNAL_DAMAGED: DataLoss,
  JOURNAL_UNAVAILABLE: Unavailable,
  OUTCOME_UNKNOWN: Unavailable,
  OLDER_SERVERS: Unavailable,
  THREAD_BUSY: ThreadBusy,
  LEASE_LOST: LeaseLost,
  EFFECT_NOT_FOUND: NotFound,
  EFFECT_INPUT_CHANGED: EffectInputChanged,
  EFFECT_NOT_UNKNOWN: EffectNotUnknown,
  EFFECT_NOT_RECORDED: EffectNotRecorded,
  BACKLOG_FULL: ResourceExhausted,
  MEMORY_FULL: ResourceExhausted,
  READER_TOO_SLOW: ResourceExhausted,
  QUOTA_EXCEEDED: ResourceExhausted,
  SIGNATURE_REFUSED: PreconditionFailed,
  SEALING_UNAVAILABLE: PreconditionFailed,
  HANDOFF_NOT_FOUND: NotFound,
  HANDOFF_CLOSED: PreconditionFailed,
  WEBHOOK_NOT_FOUND: NotFound,
  DRAINING: Unavailable,
  NOT_IMPLEMENTED: Unimplemented,
  INTERNAL_ERROR: ServerError,
  PAGE_TOKEN_INVALID: InvalidRequest,
  REQUEST_ID_REUSED: AlreadyExists,
  CURSOR_COMPACTED: CursorCompacted,
  CREDENTIAL_INVALID: Unauthenticated,
  SCOPE_MISSING: PermissionDenied,
  SNAPSHOT_NOT_FOUND: NotFound,
  DEADLINE_EXCEEDED: DeadlineExceeded,
  CERTIFICATION_FAILED: Unavailable,
  BLOB_REJECTED: PreconditionFailed,
  DESCRIPTOR_MISMATCH: DescriptorMismatch,
  SEARCH_UNAVAILABLE: null,
};

/** Return the class for a status and a reason; the reason may be empty or unknown. */
export function errorClass(status: StatusName, reason: string): ErrorClass {
  const byReason = Object.hasOwn(BY_REASON, reason) ? BY_REASON[reason as ReasonName] : null;
  return byReason ?? BY_STATUS[status];
}

/** Return the message of any thrown value. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** Return the error for a request that cannot be encoded. */
export function notEncodable(cause: unknown): InvalidRequest {
  return new InvalidRequest(`the request cannot be encoded: ${messageOf(cause)}`, {
    status: "INVALID_ARGUMENT",
    cause,
  });
}

/** Return the error for an argument that is never valid. */
export function invalidField(field: string, problem: string): InvalidRequest {
  return new InvalidRequest(`${field}: ${problem}`, {
    status: "INVALID_ARGUMENT",
    reason: "INVALID_FIELD",
    metadata: { field },
    violations: [{ field, problem }],
  });
}
