/** Effects: work in the outside world that must not be repeated, as records and as requests. */

import { createHash } from "node:crypto";
import { hostname } from "node:os";

import { durationFromMs } from "@bufbuild/protobuf/wkt";

import {
  EffectNotDone,
  EffectRefused,
  EffectUnknown,
  invalidField,
  ServerError,
  type EffectError,
} from "../../errors.js";
import {
  AttemptOutcome,
  EffectState,
  OnUnknown,
  type Effect,
} from "../../gen/tuskpoint/v1/effect_service_pb.js";
import type { CallOptions } from "../../transport/connection.js";
import { checkText, decodeValue, encodeJson, type Json } from "../../messages/json.js";
import { moment } from "../../messages/records.js";
import { choice, durability, type DurabilityName, type ViewName } from "../../messages/words.js";

/**
 * State of an effect. "unknown" means that an attempt began and did not report its outcome: the
 * work may be done.
 */
export type EffectStateName = "running" | "done" | "failed" | "unknown";

/** How an attempt failed; see `FailEffectOptions`. */
export type OutcomeName = "not_done" | "refused" | "unknown";

/** What to do with an unknown effect; see `BeginEffectOptions`. */
export type OnUnknownName = "fail" | "retry";

const STATES: Readonly<Record<EffectStateName, EffectState>> = {
  running: EffectState.RUNNING,
  done: EffectState.DONE,
  failed: EffectState.FAILED,
  unknown: EffectState.UNKNOWN,
};

const OUTCOMES: Readonly<Record<OutcomeName, AttemptOutcome>> = {
  not_done: AttemptOutcome.NOT_DONE,
  refused: AttemptOutcome.REFUSED,
  unknown: AttemptOutcome.UNKNOWN,
};

const ON_UNKNOWN: Readonly<Record<OnUnknownName, OnUnknown>> = {
  fail: OnUnknown.FAIL,
  retry: OnUnknown.RETRY,
};

const MAX_ERROR_BYTES = 1_024;
const MAX_NAME_BYTES = 256;
const MIN_ATTEMPT_MS = 1_000;
const MAX_ATTEMPT_MS = 7 * 86_400_000;

/** Options of the beginning of an effect. */
export interface BeginEffectOptions extends CallOptions {
  /** Name of the work, for people. */
  readonly name?: string | undefined;
  /** Digest of the input; see `inputDigest`. Default: the input is not compared. */
  readonly inputDigest?: Uint8Array | undefined;
  /**
   * Checkpoint from which the task runs, if the key belongs to a task. Default: the key holds for
   * the whole thread.
   */
  readonly checkpointId?: string | undefined;
  /** Namespace of `checkpointId`. Default: the root. */
  readonly checkpointNs?: string | undefined;
  /**
   * Lease under which the agent runs. Once the lease is lost, the attempt is unknown. Default: the
   * lease of the thread that this client has.
   */
  readonly leaseId?: string | undefined;
  /**
   * Milliseconds after which the attempt is unknown, unless it reports before: 1 second to 7 days.
   * The work must end before. Default: 60,000.
   */
  readonly attemptTimeoutMs?: number | undefined;
  /**
   * What to do if an earlier attempt did not report: "fail" (the default) does not do the work;
   * "retry" does the work again with the same idempotency key. Use "retry" only if the outside
   * world honours that key.
   */
  readonly onUnknown?: OnUnknownName | undefined;
  /** Who runs the attempt, for people. `effect` names host and process by default. */
  readonly owner?: string | undefined;
  /**
   * ID of the request: a repeat gets the first answer as long as the attempt runs. Two callers with
   * one ID would both do the work. Default: a new ID.
   */
  readonly requestId?: string | undefined;
  /** Durability that the call waits for. Default: "journaled". */
  readonly durability?: DurabilityName | undefined;
}

/** Options of an effect that is done once. */
export interface EffectOptions extends Omit<BeginEffectOptions, "inputDigest" | "requestId"> {
  /**
   * Input of the work, which JSON can represent. A later call with the same key must have an equal
   * input. Default: the input is not compared.
   */
  readonly input?: unknown;
  /**
   * Longest time to wait for an attempt that runs elsewhere, in milliseconds. Default: until that
   * attempt reports or is unknown.
   */
  readonly waitMs?: number | undefined;
}

/** The report of work that is done. */
export interface CompleteEffectOptions extends CallOptions {
  /** `idempotencyKey` of the attempt. */
  readonly idempotencyKey: string;
  /** Result of the work: bytes, or a value that JSON can represent. Default: no result. */
  readonly result?: unknown;
  /** Durability that the call waits for. Default: "journaled". */
  readonly durability?: DurabilityName | undefined;
}

/** The report of an attempt that failed. */
export interface FailEffectOptions extends CallOptions {
  /** `idempotencyKey` of the attempt. */
  readonly idempotencyKey: string;
  /** `attempt` of the attempt. */
  readonly attempt: number;
  /**
   * "not_done": the work was not done, and may be tried again. "refused": it was not done, and
   * another attempt makes no sense. "unknown": it may be done; a timeout of the outside world is
   * "unknown".
   */
  readonly outcome: OutcomeName;
  /** The problem, for people; the server keeps 1,024 bytes. */
  readonly error?: string | undefined;
  /** Durability that the call waits for. Default: "journaled". */
  readonly durability?: DurabilityName | undefined;
}

/** A decision about an unknown effect. */
export interface ResolveEffectOptions extends CallOptions {
  /** `attempt` of the unknown attempt. */
  readonly attempt: number;
  /** Whether the work was done. Work that was not done may be tried again. */
  readonly done: boolean;
  /** Result of the work, if it was done. Default: no result. */
  readonly result?: unknown;
  /** Who decided, for people. */
  readonly resolvedBy?: string | undefined;
  /** Durability that the call waits for. Default: "journaled". */
  readonly durability?: DurabilityName | undefined;
}

/** Options of a read of an effect. */
export interface GetEffectOptions extends CallOptions {
  /**
   * "full" (the default) for the result as it was recorded, "json" for the result as JSON, "entry"
   * for no result.
   */
  readonly view?: Exclude<ViewName, "step"> | undefined;
}

/** Selects the effects that are listed. */
export interface ListEffectsOptions extends CallOptions {
  /** Only effects in these states. Default: all. */
  readonly states?: EffectStateName | readonly EffectStateName[] | undefined;
}

/** An attempt that must do its work now. */
export interface EffectAttempt {
  /** Key to send to the outside world, so that it does the work once. */
  readonly idempotencyKey: string;
  /** Number of the attempt; the first attempt is 1. */
  readonly attempt: number;
}

/**
 * Throw or return this from the work of an effect if the work was certainly not done and may be
 * tried again. Do not use it after a timeout: a timeout does not say whether the work was done.
 */
export class NotDone extends Error {}

/**
 * Throw or return this from the work of an effect if the work was certainly not done and another
 * attempt makes no sense, such as a card that was declined.
 */
export class Refused extends Error {}

/** Work of an effect; returns its result, or how it failed. */
export type EffectWork<T> = (
  attempt: EffectAttempt,
) => T | NotDone | Refused | Promise<T | NotDone | Refused>;

/** Work in the outside world, and what the server knows about it. */
export class EffectRecord {
  /** The thread. */
  readonly threadId: string;
  /** Key of the effect, unique within the thread. */
  readonly key: string;
  /** Name of the work; may be empty. */
  readonly name: string;
  /** Key to send to the outside world, so that it does the work once. */
  readonly idempotencyKey: string;
  /** State of the effect. */
  readonly state: EffectStateName;
  /** Whether the failed work may be tried again. */
  readonly retryable: boolean;
  /** Number of the last attempt; the first attempt is 1. */
  readonly attempt: number;
  /** Who runs the last attempt; may be empty. */
  readonly owner: string;
  /** Lease under which the last attempt began; may be empty. */
  readonly leaseId: string;
  /** Digest of the input; may be empty. */
  readonly inputDigest: Uint8Array;
  /** Namespace of `checkpointId`. */
  readonly checkpointNs: string;
  /** Checkpoint to which the effect belongs; may be empty. */
  readonly checkpointId: string;
  /** Problem of the last failed attempt; may be empty. */
  readonly error: string;
  /** Who decided the effect after it was unknown; empty if nobody did. */
  readonly resolvedBy: string;
  /** Start of the first attempt. */
  readonly created: Date | undefined;
  /** Start of the last attempt. */
  readonly begun: Date | undefined;
  /** Time after which the last attempt is unknown, unless it reports before. */
  readonly expires: Date | undefined;
  /** Time of the recorded outcome; `undefined` without an outcome. */
  readonly ended: Date | undefined;
  /** Number of the last change; later changes of effects of the thread have greater numbers. */
  readonly seq: bigint;
  /** Name of the encoding of `resultData`; empty without a result. */
  readonly resultType: string;
  /** The encoded result; empty in a listing. */
  readonly resultData: Uint8Array;
  /** Whether the caller of `beginEffect` must do the work now. */
  readonly run: boolean;

  /**
   * @param message - The effect.
   * @param run - Whether the caller must do the work now.
   */
  constructor(message: Effect, run = false) {
    this.threadId = message.threadId;
    this.key = message.key;
    this.name = message.name;
    this.idempotencyKey = message.idempotencyKey;
    this.state = stateName(message.state);
    this.retryable = message.retryable;
    this.attempt = message.attempt;
    this.owner = message.owner;
    this.leaseId = message.leaseId;
    this.inputDigest = message.inputDigest;
    this.checkpointNs = message.checkpointNs;
    this.checkpointId = message.checkpointId;
    this.error = message.error;
    this.resolvedBy = message.resolvedBy;
    this.created = moment(message.createTime);
    this.begun = moment(message.attemptTime);
    this.expires = moment(message.expireTime);
    this.ended = moment(message.endTime);
    this.seq = message.seq;
    this.resultType = message.result?.type ?? "";
    this.resultData = message.result?.data ?? new Uint8Array();
    this.run = run;
  }

  /**
   * The decoded result; `undefined` if none was recorded, or the effect was listed.
   *
   * @throws UnreadableValue - The result has another type than json, null or bytes. A read with the
   *   view "json" has the result as JSON.
   */
  get result(): Json | Uint8Array | undefined {
    return this.resultType === ""
      ? undefined
      : decodeValue(
          "result",
          this.resultType,
          this.resultData,
          `the result of effect ${named(this)}`,
        );
  }
}

/**
 * Return an effect as a record.
 *
 * @throws ServerError - The message is missing.
 */
export function effectRecord(message: Effect | undefined, run = false): EffectRecord {
  if (message === undefined) {
    throw new ServerError("protocol error: an answer without the effect; please report this", {
      status: "INTERNAL",
    });
  }
  return new EffectRecord(message, run);
}

/**
 * Return the digest of an input: SHA-256 over "json", a zero byte and its canonical JSON.
 *
 * Canonical JSON follows RFC 8785, but keys are in the order of their code points. The clients in
 * all languages return the same digest for equal values. Send an integer above 2**53 as text,
 * because JavaScript rounds the number.
 *
 * @throws InvalidRequest - The value cannot be written as JSON.
 */
export function inputDigest(value: unknown): Uint8Array {
  const plain = JSON.parse(Buffer.from(encodeJson("input", value)).toString("utf8")) as Json;
  return createHash("sha256").update("json\0").update(canonical(plain)).digest();
}

/**
 * Return the fields of the request that begins an effect.
 *
 * @throws InvalidRequest - An option is not valid.
 */
export function beginning(threadId: string, key: string, options: BeginEffectOptions) {
  const { attemptTimeoutMs } = options;
  const texts = {
    threadId,
    key,
    name: options.name ?? "",
    checkpointId: options.checkpointId ?? "",
    checkpointNs: options.checkpointNs ?? "",
    leaseId: options.leaseId ?? "",
    owner: options.owner ?? "",
    requestId: options.requestId ?? "",
  };
  for (const [field, text] of Object.entries(texts)) {
    checkText(field, text);
  }
  const isInRange = (ms: number) => ms >= MIN_ATTEMPT_MS && ms <= MAX_ATTEMPT_MS;
  if (attemptTimeoutMs !== undefined && !isInRange(attemptTimeoutMs)) {
    throw invalidField("attemptTimeoutMs", `it must be 1 s to 7 days, not ${attemptTimeoutMs} ms`);
  }
  return {
    ...texts,
    inputDigest: options.inputDigest ?? new Uint8Array(),
    ...(attemptTimeoutMs !== undefined && {
      timeout: durationFromMs(Math.round(attemptTimeoutMs)),
    }),
    onUnknown: choice("onUnknown", options.onUnknown ?? "fail", ON_UNKNOWN),
    durability: durability(options.durability),
  };
}

/** Return the fields of the request that reports an effect as done, without its result. */
export function completing(options: Omit<CompleteEffectOptions, "result">) {
  const { idempotencyKey } = options;
  checkText("idempotencyKey", idempotencyKey);
  return { idempotencyKey, durability: durability(options.durability) };
}

/**
 * Return the fields of the request that reports an attempt as failed.
 *
 * @throws InvalidRequest - The outcome is unknown.
 */
export function failing(options: FailEffectOptions) {
  const { idempotencyKey, attempt } = options;
  checkText("idempotencyKey", idempotencyKey);
  return {
    idempotencyKey,
    attempt,
    outcome: choice("outcome", options.outcome, OUTCOMES),
    error: cut(options.error ?? "", MAX_ERROR_BYTES),
    durability: durability(options.durability),
  };
}

/** An encoded result. */
export interface EncodedResult {
  /** Name of the encoding. */
  readonly type: string;
  /** The encoded result. */
  readonly data: Uint8Array;
}

/**
 * Return a result as bytes or as JSON; `undefined` for no result.
 *
 * @throws InvalidRequest - The result cannot be written as JSON.
 */
export function resultOf(result: unknown): EncodedResult | undefined {
  if (result === undefined) {
    return undefined;
  }
  return result instanceof Uint8Array
    ? { type: "bytes", data: result }
    : { type: "json", data: encodeJson("result", result) };
}

/**
 * Return the fields of the request that decides an unknown effect.
 *
 * @throws InvalidRequest - The result cannot be written as JSON, or the work was not done.
 */
export function resolving(options: ResolveEffectOptions) {
  const { attempt, done, resolvedBy = "" } = options;
  checkText("resolvedBy", resolvedBy);
  const result = resultOf(options.result);
  if (!done && result !== undefined) {
    throw invalidField("result", "work that was not done has no result");
  }
  const safe = durability(options.durability);
  return { attempt, done, ...(result && { result }), resolvedBy, durability: safe };
}

/**
 * Return the states that a listing selects.
 *
 * @throws InvalidRequest - A state is unknown.
 */
export function statesOf(names: EffectStateName | readonly EffectStateName[] = []): EffectState[] {
  const all = typeof names === "string" ? [names] : names;
  return all.map((name) => choice("states", name, STATES));
}

/** Return who runs an attempt: host and process. */
export function thisOwner(): string {
  return cut(`${hostname()}:${process.pid}`, MAX_NAME_BYTES);
}

/** Return the error for an effect that ended without being done. */
export function endingError(effect: EffectRecord, cause?: unknown): EffectError {
  const why = effect.error || "no reason was given";
  const details = { status: "FAILED_PRECONDITION", effect, cause } as const;
  if (effect.state === "failed") {
    return effect.retryable
      ? new EffectNotDone(`effect ${named(effect)} was not done: ${why}; try again`, details)
      : new EffectRefused(
          `effect ${named(effect)} was refused: ${why}; another attempt makes no sense: change ` +
            "the input and use another key",
          details,
        );
  }
  const problem = effect.error === "" ? "" : ` (${effect.error})`;
  return new EffectUnknown(
    `it is unknown whether effect ${named(effect)} was done: ${described(effect)} and reported no ` +
      `outcome${problem}; look in the outside world for idempotency key ` +
      `${effect.idempotencyKey}, then decide with \`resolveEffect\` or \`tuskpoint effects ` +
      'resolve`; pass onUnknown: "retry" only if the outside world honours the key',
    details,
  );
}

/** Return the words for an effect in a message. */
export function named(effect: EffectRecord): string {
  return `'${effect.key}' of thread '${effect.threadId}'`;
}

/** Return the words for the last attempt of an effect in a message. */
export function described(effect: EffectRecord): string {
  const begun = effect.begun?.toISOString() ?? "an unknown time";
  return `attempt ${effect.attempt} began at ${begun} by ${effect.owner || "an unnamed caller"}`;
}

/** A state that only a newer server knows is never taken for "done" or "failed". */
function stateName(state: EffectState): EffectStateName {
  const entries = Object.entries(STATES) as [EffectStateName, EffectState][];
  return entries.find(([, value]) => value === state)?.[0] ?? "unknown";
}

function canonical(value: Json): string {
  if (Array.isArray(value)) {
    return `[${value.map(canonical).join(",")}]`;
  }
  if (typeof value !== "object" || value === null) {
    return JSON.stringify(value);
  }
  // By code points, as other languages sort, and not by the halves of surrogate pairs.
  const entries = Object.entries(value).sort(([one], [other]) =>
    Buffer.compare(Buffer.from(one), Buffer.from(other)),
  );
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonical(item)}`).join(",")}}`;
}

/** Return a text without NUL that has at most some bytes of UTF-8. */
function cut(text: string, size: number): string {
  const data = Buffer.from(text.toWellFormed().replaceAll("\0", " "), "utf8");
  let end = Math.min(size, data.length);
  while (end < data.length && end > 0 && ((data[end] ?? 0) & 0xc0) === 0x80) {
    end -= 1;
  }
  return data.toString("utf8", 0, end);
}
