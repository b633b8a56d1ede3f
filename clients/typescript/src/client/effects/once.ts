/** Work that is done once: begin, do the work, report its outcome. */

import { setTimeout as sleep } from "node:timers/promises";

import { EffectRunning, messageOf, NotFound, PreconditionFailed } from "../../errors.js";
import type { Calls } from "../../transport/calls.js";
import { emitUnreported } from "../../transport/warnings.js";
import { callOf, checkTexts } from "../arguments.js";
import {
  beginning,
  completing,
  described,
  effectRecord,
  endingError,
  failing,
  named,
  NotDone,
  Refused,
  resultOf,
  thisOwner,
  type BeginEffectOptions,
  type CompleteEffectOptions,
  type EffectRecord,
  type EffectWork,
  type EncodedResult,
  type FailEffectOptions,
  type OutcomeName,
} from "./records.js";

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2_000;

/** Which work to do once. */
export interface EffectPlan {
  /** The thread. */
  readonly threadId: string;
  /** Key of the effect. */
  readonly key: string;
  /** How to begin, wait and report. */
  readonly options: Omit<BeginEffectOptions, "requestId"> & {
    readonly waitMs?: number | undefined;
  };
  /** Longest wait for the save of the task's checkpoint, in milliseconds. Default: 0. */
  readonly saveWaitMs?: number | undefined;
  /** Encodes a result. Default: bytes as they are, anything else as JSON. */
  readonly encode?: ((result: unknown) => Promise<EncodedResult | undefined>) | undefined;
}

/** Ask whether to do the work of an effect; see `Client.beginEffect`. */
export async function begin(
  calls: Calls,
  threadId: string,
  key: string,
  options: BeginEffectOptions,
): Promise<EffectRecord> {
  const call = callOf(options);
  const leaseId = options.leaseId ?? calls.leases.of(threadId);
  const request = beginning(threadId, key, { ...options, leaseId });
  const answer = calls.connection.raw.effects.beginEffect(request, call);
  const { effect, run } = await calls.change(answer);
  return effectRecord(effect, run);
}

/** Record that the work of an effect is done; see `Client.completeEffect`. */
export async function complete(
  calls: Calls,
  threadId: string,
  key: string,
  options: Omit<CompleteEffectOptions, "result">,
  result: EncodedResult | undefined,
): Promise<EffectRecord> {
  const call = callOf(options);
  checkTexts({ threadId, key });
  const request = { threadId, key, ...completing(options), ...(result && { result }) };
  return effectRecord((await calls.connection.raw.effects.completeEffect(request, call)).effect);
}

/** Record how an attempt failed; see `Client.failEffect`. */
export async function fail(
  calls: Calls,
  threadId: string,
  key: string,
  options: FailEffectOptions,
): Promise<EffectRecord> {
  const call = callOf(options);
  checkTexts({ threadId, key });
  const request = { threadId, key, ...failing(options) };
  return effectRecord((await calls.connection.raw.effects.failEffect(request, call)).effect);
}

/** Do the work of an effect unless it is done; return the effect with its recorded result. */
export async function doOnce<T>(
  calls: Calls,
  plan: EffectPlan,
  work: EffectWork<T>,
): Promise<EffectRecord> {
  const effect = await begun(calls, plan);
  return effect.run ? await attempted(calls, plan, effect, work) : effect;
}

/** Begin an effect; wait for the save of its checkpoint, and for an attempt that runs elsewhere. */
async function begun(calls: Calls, plan: EffectPlan): Promise<EffectRecord> {
  const { threadId, key, options, saveWaitMs = 0 } = plan;
  const { waitMs = Number.POSITIVE_INFINITY, signal } = options;
  const asked = { ...options, owner: options.owner ?? thisOwner() };
  const start = performance.now();
  for (let boundMs = FIRST_PAUSE_MS; ; boundMs = Math.min(boundMs * 1.5, LONGEST_PAUSE_MS)) {
    let leftMs: number;
    try {
      const effect = await begin(calls, threadId, key, asked);
      if (effect.run || effect.state === "done") {
        return effect;
      }
      if (effect.state !== "running") {
        throw endingError(effect);
      }
      leftMs = start + waitMs - performance.now();
      if (leftMs <= 0) {
        throw new EffectRunning(
          `effect ${named(effect)} runs elsewhere: ${described(effect)}; wait longer, or let that ` +
            "attempt report",
          { status: "FAILED_PRECONDITION", effect },
        );
      }
    } catch (error) {
      leftMs = start + saveWaitMs - performance.now();
      if (
        !(error instanceof NotFound && error.reason === "CHECKPOINT_MISSING") ||
        saveWaitMs === 0
      ) {
        throw error;
      }
      if (leftMs <= 0) {
        throw unsaved(plan, error);
      }
    }
    await pause(Math.min(leftMs, boundMs * (0.5 + Math.random() / 2)), signal);
  }
}

function unsaved({ threadId, key, options, saveWaitMs = 0 }: EffectPlan, cause: NotFound) {
  return new PreconditionFailed(
    `effect '${key}' of thread '${threadId}' cannot begin: checkpoint '${options.checkpointId}' of ` +
      `its task was not saved within ${saveWaitMs / 1000} s, so a later run could not find the ` +
      "effect; check that the graph's checkpointer is this saver, that its saves succeed and that " +
      'the run does not have durability "exit", or pass a key of your own',
    { status: cause.status, reason: cause.reason, metadata: cause.metadata, cause },
  );
}

/** Do the work of an attempt, and report its outcome. */
async function attempted<T>(
  calls: Calls,
  { options, encode }: EffectPlan,
  effect: EffectRecord,
  work: EffectWork<T>,
): Promise<EffectRecord> {
  const { threadId, key, idempotencyKey, attempt } = effect;
  const { durability, timeoutMs } = options;
  const failed = (outcome: OutcomeName, error: string) =>
    reportFailure(calls, effect, {
      idempotencyKey,
      attempt,
      outcome,
      error,
      durability,
      timeoutMs,
    });
  let result: unknown;
  try {
    result = await work({ idempotencyKey, attempt });
  } catch (thrown) {
    result = thrown;
    if (!(thrown instanceof NotDone || thrown instanceof Refused)) {
      await failed("unknown", problemOf(thrown));
      throw thrown;
    }
  }
  if (result instanceof NotDone || result instanceof Refused) {
    const recorded = await failed(
      result instanceof NotDone ? "not_done" : "refused",
      result.message,
    );
    if (recorded?.state === "done") {
      return recorded; // An earlier attempt did the work, and reported late.
    }
    throw recorded === undefined ? result : endingError(recorded, result);
  }
  try {
    const encoded = encode === undefined ? resultOf(result) : await encode(result);
    return await complete(calls, threadId, key, { idempotencyKey, durability, timeoutMs }, encoded);
  } catch (failure) {
    const why = `the work was done, but its result was not recorded: ${messageOf(failure)}`;
    await failed("unknown", why);
    throw failure;
  }
}

/** Report how an attempt failed; `undefined` and a warning if that is not possible. */
async function reportFailure(
  calls: Calls,
  { threadId, key }: EffectRecord,
  report: FailEffectOptions,
): Promise<EffectRecord | undefined> {
  try {
    return await fail(calls, threadId, key, report);
  } catch (failure) {
    // The caller gets the error of the work. The attempt is unknown when its time is over.
    emitUnreported(calls.connection.target, `${threadId}/${key}`, messageOf(failure));
    return undefined;
  }
}

function problemOf(thrown: unknown): string {
  return thrown instanceof Error ? `${thrown.constructor.name}: ${thrown.message}` : String(thrown);
}

async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await sleep(ms, undefined, { signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  }
}
