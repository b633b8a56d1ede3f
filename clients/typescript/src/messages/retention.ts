/** Retention rules, their effects, and receipts of deletion. */

import { durationFromMs, durationMs } from "@bufbuild/protobuf/wkt";

import { invalidField } from "../errors.js";
import type {
  EraseThreadsResponse,
  PreviewRetentionResponse,
  RetentionEffect as EffectMessage,
} from "../gen/tuskpoint/v1/thread_service_pb.js";
import { decodeObject, type JsonObject } from "./json.js";

/**
 * A rule that selects threads and checkpoints to keep.
 *
 * With `keepLast` or `keepForMs`, a checkpoint stays if one of the two keeps it, if it has a label,
 * if it was handed off, or if it belongs to a root checkpoint that stays. Times are in whole
 * seconds.
 */
export interface RetentionRule {
  /** Only threads of this agent. Default: all. */
  readonly agentId?: string | undefined;
  /** Only this thread. Default: all. */
  readonly threadId?: string | undefined;
  /** Milliseconds without a change after which a thread is deleted. Default: never. */
  readonly deleteAfterMs?: number | undefined;
  /** Number of latest checkpoints that each namespace keeps; 0 keeps one. Default: 0. */
  readonly keepLast?: number | undefined;
  /** Milliseconds for which checkpoints are kept. */
  readonly keepForMs?: number | undefined;
}

/** The deletions that rules cause in a thread. */
export interface RetentionEffect {
  /** The thread; empty in a sum. */
  readonly threadId: string;
  /** Whether the whole thread is deleted. */
  readonly threadDeleted: boolean;
  /** Number of checkpoints deleted. */
  readonly checkpoints: bigint;
  /** Bytes that the journal no longer needs after the deletion. */
  readonly journalBytes: bigint;
  /** Bytes in the blob store that are no longer renewed after the deletion. */
  readonly storedBytes: bigint;
}

/** The deletions that rules would cause at this moment. */
export interface RetentionPreview {
  /** The rules. */
  readonly rules: readonly RetentionRule[];
  /** The first 1,000 affected threads, by ID. */
  readonly effects: readonly RetentionEffect[];
  /** The sum over all affected threads. */
  readonly total: RetentionEffect;
  /** Number of affected threads. */
  readonly threads: bigint;
  /** Number of threads that would be deleted. */
  readonly threadsDeleted: bigint;
}

/** The proof that a server deleted threads. */
export interface Receipt {
  /** The signed JSON object, as the server sent it. */
  readonly content: string;
  /** The parsed content; docs/servers/retention.md describes its keys. */
  readonly document: JsonObject;
  /** Public key of the server, in lowercase hex. */
  readonly signer: string;
  /** Ed25519 signature of `tuskpoint receipt v1`, a line feed and the content, in lowercase hex. */
  readonly signature: string;
}

/**
 * Return a rule as the fields of its message.
 *
 * @throws InvalidRequest - A time is not in whole seconds above 0, or `keepLast` is not a number.
 */
export function ruleOf(rule: RetentionRule, index: number) {
  const { agentId = "", threadId = "", keepLast = 0, deleteAfterMs, keepForMs } = rule;
  if (!Number.isInteger(keepLast) || keepLast < 0 || keepLast >= 2 ** 32) {
    const problem = `it must be a number of checkpoints, not ${keepLast}`;
    throw invalidField(`rules[${index}].keepLast`, problem);
  }
  const times = { deleteAfterMs, keepForMs };
  for (const [name, time] of Object.entries(times)) {
    if (time !== undefined && !(time >= 1_000 && time % 1_000 === 0)) {
      const problem = `it must be a time of one or more whole seconds, or undefined; not ${time}`;
      throw invalidField(`rules[${index}].${name}`, problem);
    }
  }
  return {
    agentId,
    threadId,
    keepLast,
    ...(deleteAfterMs === undefined ? {} : { deleteAfter: durationFromMs(deleteAfterMs) }),
    ...(keepForMs === undefined ? {} : { keepFor: durationFromMs(keepForMs) }),
  };
}

/** Return a preview as a record. */
export function retentionPreview(answer: PreviewRetentionResponse): RetentionPreview {
  return {
    rules: answer.rules.map(({ agentId, threadId, keepLast, deleteAfter, keepFor }) => ({
      agentId,
      threadId,
      keepLast,
      deleteAfterMs: deleteAfter === undefined ? undefined : durationMs(deleteAfter),
      keepForMs: keepFor === undefined ? undefined : durationMs(keepFor),
    })),
    effects: answer.effects.map(effectOf),
    total: effectOf(answer.total),
    threads: answer.threads,
    threadsDeleted: answer.threadsDeleted,
  };
}

/** Return a receipt as a record. */
export function receiptOf(answer: EraseThreadsResponse): Receipt {
  return {
    content: Buffer.from(answer.receipt).toString("utf8"),
    document: decodeObject(answer.receipt),
    signer: answer.signer,
    signature: answer.signature,
  };
}

function effectOf(effect: EffectMessage | undefined): RetentionEffect {
  return {
    threadId: effect?.threadId ?? "",
    threadDeleted: effect?.threadDeleted ?? false,
    checkpoints: effect?.checkpoints ?? 0n,
    journalBytes: effect?.journalBytes ?? 0n,
    storedBytes: effect?.storedBytes ?? 0n,
  };
}
