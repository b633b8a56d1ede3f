/** The wait for the first answer of a target, so that a wrong address is reported soon. */

import { setTimeout as sleep } from "node:timers/promises";

import { Unavailable, type TuskPointError } from "../errors.js";
import { backoffMs, RETRY_POLICY } from "./retry.js";
import { isUntrusted, noAnswer } from "./status.js";
import { emitSilence } from "./warnings.js";

/** Milliseconds during which a call tries to reach a target that has never answered. */
export const FIRST_ANSWER_MS = 5_000;
/** Milliseconds without any answer after which a warning is due. */
const WARN_MS = 2_000;
/** Milliseconds that the last attempt may take. */
const LAST_ATTEMPT_MS = 500;

/** Targets that have answered this process. */
const answered = new Set<string>();

/** Return whether a failure proves that a server answered: only servers give a reason. */
export function isAnswer({ status, reason }: TuskPointError): boolean {
  return reason !== "" || (status !== "UNAVAILABLE" && status !== "CANCELLED");
}

/** Request any answer from the servers of a target; fail with the errors of `errors.ts`. */
export type Ask = (signal: AbortSignal) => Promise<void>;

/**
 * Waits until the target of a connection has answered this process once.
 *
 * The last attempt starts exactly when the time is up, so that a server that starts within the time
 * is reached. Calls that wait together continue in the order in which they were made.
 */
export class FirstContact {
  readonly #target: string;
  readonly #ask: Ask;
  readonly #reached = withResolvers();
  #hasAnswered: boolean;

  /**
   * @param target - The target, normalized.
   * @param ask - Requests an answer from the servers.
   */
  constructor(target: string, ask: Ask) {
    this.#target = target;
    this.#ask = ask;
    this.#hasAnswered = answered.has(target);
  }

  /** Whether the target has answered, so that calls need not wait. */
  get hasAnswered(): boolean {
    return this.#hasAnswered;
  }

  /**
   * Wait for the first answer.
   *
   * @param giveUpMs - Milliseconds until the last attempt starts.
   * @param signal - Ends the wait: the promise is rejected with the signal's reason.
   * @throws Unavailable - The target did not answer within the time.
   */
  async wait(giveUpMs: number, signal: AbortSignal): Promise<void> {
    const own = linked(signal);
    try {
      await Promise.race([this.#reached.promise, this.#attempts(giveUpMs, own.signal)]);
    } finally {
      own.end();
    }
  }

  /** Request an answer until one arrives, or no time is left for another attempt. */
  async #attempts(giveUpMs: number, signal: AbortSignal): Promise<never> {
    const started = performance.now();
    const passed = () => performance.now() - started;
    const untilMarkMs = () =>
      (passed() < WARN_MS ? Math.min(WARN_MS, giveUpMs) : giveUpMs) - passed();
    let isLast = false;
    for (let failures = 1; ; failures += 1) {
      const timeoutMs = isLast ? LAST_ATTEMPT_MS : Math.max(1, untilMarkMs());
      const failure = await this.#attempt(timeoutMs, passed, signal);
      if (failure === undefined) {
        this.#note();
        return await new Promise(() => undefined); // The other promise of the race has resolved.
      }
      if (isLast || isUntrusted(failure)) {
        throw failure;
      }
      const warn = () => {
        if (passed() >= WARN_MS && passed() < giveUpMs) {
          emitSilence(this.#target, failure.message);
        }
      };
      warn();
      const pauseMs = backoffMs(RETRY_POLICY, failures, failure, Math.random);
      const waitMs = Math.max(0, Math.min(pauseMs, untilMarkMs()));
      isLast = passed() + waitMs >= giveUpMs;
      await sleep(waitMs, undefined, { signal });
      warn(); // Timers may fire a little early, just before the warning is due.
    }
  }

  /** Make one attempt; return the failure. */
  async #attempt(
    timeoutMs: number,
    passed: () => number,
    signal: AbortSignal,
  ): Promise<TuskPointError | undefined> {
    const own = linked(signal);
    const timer = setTimeout(own.end, timeoutMs);
    try {
      await this.#ask(own.signal);
      return undefined;
    } catch (error) {
      signal.throwIfAborted();
      if (own.signal.aborted) {
        const text = `no answer within ${(passed() / 1_000).toFixed(1)} s`;
        return new Unavailable(noAnswer(this.#target, text), { status: "UNAVAILABLE" });
      }
      return error as TuskPointError;
    } finally {
      clearTimeout(timer);
      own.end();
    }
  }

  #note(): void {
    answered.add(this.#target);
    this.#reached.resolve();
    // Only after the waiting calls have continued, so that no later call overtakes them.
    setImmediate(() => {
      this.#hasAnswered = true;
    });
  }
}

/** Return a signal that is aborted together with another signal, or earlier. */
function linked(signal: AbortSignal): { signal: AbortSignal; end: () => void } {
  const own = new AbortController();
  const abort = () => own.abort(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  if (signal.aborted) {
    abort();
  }
  const end = () => {
    signal.removeEventListener("abort", abort);
    own.abort();
  };
  return { signal: own.signal, end };
}

function withResolvers(): { promise: Promise<void>; resolve: () => void } {
  let resolve = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
