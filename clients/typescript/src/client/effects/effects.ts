/** Effects: work in the outside world that must not be repeated blindly. */

import { setTimeout as sleep } from "node:timers/promises";

import { EffectRunning, messageOf } from "../../errors.js";
import {
  beginning,
  completing,
  described,
  effectRecord,
  endingError,
  failing,
  inputDigest,
  named,
  NotDone,
  Refused,
  resolving,
  statesOf,
  thisOwner,
  type BeginEffectOptions,
  type CompleteEffectOptions,
  type EffectAttempt,
  type EffectOptions,
  type EffectRecord,
  type FailEffectOptions,
  type GetEffectOptions,
  type ListEffectsOptions,
  type OutcomeName,
  type ResolveEffectOptions,
} from "./records.js";
import { view } from "../../messages/words.js";
import { emitUnreported } from "../../transport/warnings.js";
import { BATCH, callOf, checkOptions, checkTexts, entries } from "../arguments.js";
import { Inbox } from "../inbox.js";

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2_000;

/** The part of the client that does work in the outside world once. */
export abstract class Effects extends Inbox {
  /**
   * Do work in the outside world once per thread and key; return its recorded result.
   *
   * If an earlier attempt did the work, the call returns the recorded result without doing the work.
   * If an attempt runs elsewhere, the call waits for it. The result comes back as JSON, also in the
   * call that did the work; bytes stay bytes.
   *
   * If the work throws, the effect is unknown and the error is thrown again, unless the work throws
   * or returns `NotDone` or `Refused`. A `signal` ends only the wait before the work: the outcome of
   * work that has begun is reported in any case.
   *
   * @param key - Key of the effect, unique within the thread, such as "charge:order-42".
   * @param work - Does the work. Send its `idempotencyKey` to the outside world.
   * @throws EffectUnknown - It is unknown whether an earlier attempt did the work.
   * @throws EffectRunning - Another attempt did not report within `waitMs`.
   * @throws EffectNotDone - The work returned or threw `NotDone`.
   * @throws EffectRefused - The work, or an earlier attempt, returned or threw `Refused`.
   * @throws EffectInputChanged - The effect was begun with another input.
   */
  async effect<T>(
    threadId: string,
    key: string,
    options: EffectOptions,
    work: (attempt: EffectAttempt) => T | NotDone | Refused | Promise<T | NotDone | Refused>,
  ): Promise<T> {
    const effect = await this.#begun(threadId, key, options);
    const ended = effect.run ? await this.#attempted(effect, options, work) : effect;
    return ended.result as T; // What the work returned, after JSON.
  }

  /**
   * Ask whether to do the work of an effect, and record the attempt.
   *
   * Do the work only if `run` of the returned effect is true, and then report its outcome with
   * `completeEffect` or `failEffect`. `effect` does all of this.
   *
   * @throws EffectInputChanged - The effect was begun with another input.
   * @throws NotFound - The checkpoint is not stored.
   */
  async beginEffect(
    threadId: string,
    key: string,
    options: BeginEffectOptions = {},
  ): Promise<EffectRecord> {
    const call = callOf(options);
    const leaseId = options.leaseId ?? this.calls.leases.get(threadId);
    const request = beginning(threadId, key, { ...options, leaseId });
    const { effect, run } = await this.raw.effects.beginEffect(request, call);
    return effectRecord(effect, run);
  }

  /**
   * Record that the work of an effect is done; return the effect with its recorded result.
   *
   * The report of any attempt counts, however late. The first reported result stays.
   *
   * @throws NotFound - The effect does not exist.
   * @throws ResourceExhausted - The result is too large. Record a reference to it instead.
   */
  async completeEffect(
    threadId: string,
    key: string,
    options: CompleteEffectOptions,
  ): Promise<EffectRecord> {
    const call = callOf(options);
    checkTexts({ threadId, key });
    const request = { threadId, key, ...completing(options) };
    return effectRecord((await this.raw.effects.completeEffect(request, call)).effect);
  }

  /**
   * Record how an attempt failed; return the effect.
   *
   * @throws NotFound - The effect or the attempt does not exist.
   */
  async failEffect(
    threadId: string,
    key: string,
    options: FailEffectOptions,
  ): Promise<EffectRecord> {
    const call = callOf(options);
    checkTexts({ threadId, key });
    const request = { threadId, key, ...failing(options) };
    return effectRecord((await this.raw.effects.failEffect(request, call)).effect);
  }

  /**
   * Decide an unknown effect; return the effect. A repeat of the decision changes nothing.
   *
   * @throws NotFound - The effect or the attempt does not exist.
   * @throws EffectNotUnknown - The effect is not unknown, or a later attempt has begun.
   */
  async resolveEffect(
    threadId: string,
    key: string,
    options: ResolveEffectOptions,
  ): Promise<EffectRecord> {
    const call = callOf(options);
    checkTexts({ threadId, key });
    const request = { threadId, key, ...resolving(options) };
    return effectRecord((await this.raw.effects.resolveEffect(request, call)).effect);
  }

  /**
   * Return an effect.
   *
   * @throws NotFound - The effect or the thread does not exist.
   */
  async getEffect(
    threadId: string,
    key: string,
    options: GetEffectOptions = {},
  ): Promise<EffectRecord> {
    const call = callOf(options);
    checkTexts({ threadId, key });
    const request = { threadId, key, view: view(options.view) };
    return effectRecord((await this.raw.effects.getEffect(request, call)).effect);
  }

  /**
   * Yield the effects of a thread without their results, the last changed first.
   *
   * @throws NotFound - The thread does not exist.
   */
  async *listEffects(
    threadId: string,
    options: ListEffectsOptions = {},
  ): AsyncGenerator<EffectRecord, void, undefined> {
    checkTexts({ threadId });
    checkOptions(options);
    const request = { threadId, states: statesOf(options.states), pageSize: BATCH };
    const fetch = (pageToken: string) =>
      this.raw.effects.listEffects({ ...request, pageToken }, callOf(options));
    yield* entries(this.connection, fetch, (page) => page.effects.map((one) => effectRecord(one)));
  }

  /** Begin an effect; wait for an attempt that runs elsewhere. */
  async #begun(threadId: string, key: string, options: EffectOptions): Promise<EffectRecord> {
    checkOptions(options);
    const { input, waitMs = Number.POSITIVE_INFINITY, signal } = options;
    const asked = {
      ...options,
      owner: options.owner ?? thisOwner(),
      ...(input !== undefined && { inputDigest: inputDigest(input) }),
    };
    const end = performance.now() + waitMs;
    for (let boundMs = FIRST_PAUSE_MS; ; boundMs = Math.min(boundMs * 1.5, LONGEST_PAUSE_MS)) {
      const effect = await this.beginEffect(threadId, key, asked);
      if (effect.run || effect.state === "done") {
        return effect;
      }
      if (effect.state !== "running") {
        throw endingError(effect);
      }
      const leftMs = end - performance.now();
      if (leftMs <= 0) {
        throw new EffectRunning(
          `effect ${named(effect)} runs elsewhere: ${described(effect)}; wait longer, or let that ` +
            "attempt report",
          { status: "FAILED_PRECONDITION", effect },
        );
      }
      await pause(Math.min(leftMs, boundMs * (0.5 + Math.random() / 2)), signal);
    }
  }

  /** Do the work of an attempt, and report its outcome. */
  async #attempted<T>(
    effect: EffectRecord,
    options: EffectOptions,
    work: (attempt: EffectAttempt) => T | Promise<T>,
  ): Promise<EffectRecord> {
    const { idempotencyKey, attempt } = effect;
    let result: unknown;
    try {
      result = await work({ idempotencyKey, attempt });
    } catch (thrown) {
      result = thrown;
      if (!(thrown instanceof NotDone || thrown instanceof Refused)) {
        await this.#failed(effect, options, "unknown", problemOf(thrown));
        throw thrown;
      }
    }
    if (result instanceof NotDone || result instanceof Refused) {
      const outcome = result instanceof NotDone ? "not_done" : "refused";
      const recorded = await this.#failed(effect, options, outcome, result.message);
      if (recorded?.state === "done") {
        return recorded; // An earlier attempt did the work, and reported late.
      }
      throw recorded === undefined ? result : endingError(recorded, result);
    }
    try {
      const { durability, timeoutMs } = options;
      const report = { idempotencyKey, result, durability, timeoutMs };
      return await this.completeEffect(effect.threadId, effect.key, report);
    } catch (failure) {
      const why = `the work was done, but its result was not recorded: ${messageOf(failure)}`;
      await this.#failed(effect, options, "unknown", why);
      throw failure;
    }
  }

  /** Report how an attempt failed; `undefined` and a warning if that is not possible. */
  async #failed(
    { threadId, key, idempotencyKey, attempt }: EffectRecord,
    { durability, timeoutMs }: EffectOptions,
    outcome: OutcomeName,
    error: string,
  ): Promise<EffectRecord | undefined> {
    const report = { idempotencyKey, attempt, outcome, error, durability, timeoutMs };
    try {
      return await this.failEffect(threadId, key, report);
    } catch (failure) {
      // The caller gets the error of the work. The attempt is unknown when its time is over.
      emitUnreported(this.target, `${threadId}/${key}`, messageOf(failure));
      return undefined;
    }
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
