/** Effects: work in the outside world that must not be repeated blindly. */

import { begin, complete, doOnce, fail } from "./once.js";
import {
  effectRecord,
  inputDigest,
  resolving,
  resultOf,
  statesOf,
  type BeginEffectOptions,
  type CompleteEffectOptions,
  type EffectOptions,
  type EffectRecord,
  type EffectWork,
  type FailEffectOptions,
  type GetEffectOptions,
  type ListEffectsOptions,
  type ResolveEffectOptions,
} from "./records.js";
import { view } from "../../messages/words.js";
import { BATCH, callOf, checkOptions, checkTexts, entries } from "../arguments.js";
import { Inbox } from "../inbox.js";

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
    work: EffectWork<T>,
  ): Promise<T> {
    checkOptions(options);
    const { input, ...others } = options;
    const asked = input === undefined ? others : { ...others, inputDigest: inputDigest(input) };
    const ended = await doOnce(this.calls, { threadId, key, options: asked }, work);
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
    return await begin(this.calls, threadId, key, options);
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
    const { result, ...report } = options;
    return await complete(this.calls, threadId, key, report, resultOf(result));
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
    return await fail(this.calls, threadId, key, options);
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
}
