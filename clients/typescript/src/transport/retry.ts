/**
 * The only retry policy: which failures are retried, when, and until when.
 *
 * Nothing here does I/O or reads a clock; callers pass the time.
 */

import { invalidField, type StatusName } from "../errors.js";

/**
 * Reasons with which the server guarantees that it stored nothing: even a call that must not be
 * applied twice may be sent again.
 */
const NOTHING_STORED: ReadonlySet<string> = new Set([
  "DRAINING",
  "JOURNAL_UNAVAILABLE",
  "BACKLOG_FULL",
]);

/**
 * Whether a call may be sent again when it is unknown whether the first attempt was applied: "safe"
 * if applying the call twice has the same effect as applying it once.
 */
export type Repeat = "safe" | "unsafe";

/** Exponential backoff with full jitter. */
export interface RetryPolicy {
  /** Most attempts of one call, the first included; at least 1. */
  readonly maxAttempts: number;
  /** Upper bound of the first pause, in milliseconds. */
  readonly initialDelayMs: number;
  /** Growth of the pause from one retry to the next. */
  readonly multiplier: number;
  /** Upper bound of every pause, in milliseconds. */
  readonly maxDelayMs: number;
}

/** The retry schedule of all clients. */
export const RETRY_POLICY: RetryPolicy = {
  maxAttempts: 64,
  initialDelayMs: 100,
  multiplier: 2,
  maxDelayMs: 2_000,
};

/** The parts of an error that decide about a retry. */
export interface Failure {
  readonly status: StatusName;
  readonly reason: string;
  readonly retryAfterMs?: number | undefined;
}

/** Time limits of the attempts of a call, in milliseconds after its start. */
export interface Times {
  /** Time after which no new attempt starts. */
  readonly giveUpMs: number;
  /** Time at which an attempt in progress ends. */
  readonly deadlineMs: number;
}

/**
 * Return whether a failed call can succeed by waiting, and may be sent again.
 *
 * `UNAVAILABLE` is retried after AIP-194 (google.aip.dev/194). So is `CANCELLED`: aborts by the
 * caller never reach this function, so the other side dropped the call. `RESOURCE_EXHAUSTED` is
 * retried only if the server names a pause. `ABORTED` and `DEADLINE_EXCEEDED` are never retried:
 * the first needs a decision, the second has used up its time.
 */
export function isWorthRepeating(failure: Failure, repeat: Repeat): boolean {
  if (repeat === "unsafe" && !NOTHING_STORED.has(failure.reason)) {
    return false;
  }
  if (failure.status === "UNAVAILABLE" || failure.status === "CANCELLED") {
    return true;
  }
  return failure.status === "RESOURCE_EXHAUSTED" && failure.retryAfterMs !== undefined;
}

/**
 * Return the milliseconds to wait after a failure.
 *
 * The jitter is added to a pause that the server asked for, so that clients which were refused
 * together do not return together.
 *
 * @param policy - The schedule.
 * @param failures - Number of consecutive failures, the last one included.
 * @param failure - The last failure.
 * @param random - Returns a number in [0, 1).
 */
export function backoffMs(
  policy: RetryPolicy,
  failures: number,
  failure: Failure,
  random: () => number,
): number {
  const { initialDelayMs, multiplier, maxDelayMs } = policy;
  const bound = Math.min(maxDelayMs, initialDelayMs * multiplier ** (failures - 1));
  return (failure.retryAfterMs ?? 0) + random() * bound;
}

/** The attempts of one call: when the next may start, and how long it may take. */
export class Attempts {
  readonly #policy: RetryPolicy;
  readonly #giveUp: number;
  readonly #deadline: number;
  readonly #repeat: Repeat;
  #failures = 0;
  #last: Failure | undefined;

  /**
   * @param policy - The schedule.
   * @param now - Time of the call's start on a monotonic clock, in milliseconds.
   * @param times - Time limits of the call.
   * @param repeat - Whether the call may be sent twice.
   */
  constructor(policy: RetryPolicy, now: number, times: Times, repeat: Repeat) {
    this.#policy = policy;
    this.#giveUp = now + times.giveUpMs;
    this.#deadline = now + times.deadlineMs;
    this.#repeat = repeat;
  }

  /** Whether the call may be sent again though the first attempt may have been applied. */
  get isSafe(): boolean {
    return this.#repeat === "safe";
  }

  /** Failure of the last attempt that was retried. */
  get last(): Failure | undefined {
    return this.#last;
  }

  /** Note a failure; return whether there is time for another attempt after a pause. */
  goOnAfter(now: number, failure: Failure, pauseMs: number): boolean {
    const isTime = now + pauseMs < Math.min(this.#giveUp, this.#deadline);
    if (isTime) {
      this.#last = failure;
    }
    return isTime;
  }

  /** Return the milliseconds that the next attempt may take; may be infinite. */
  remainingMs(now: number): number {
    return Math.max(0, this.#deadline - now);
  }

  /**
   * Return the milliseconds to wait before the next attempt, or `undefined` to give up.
   *
   * @param now - Time of the failure.
   * @param failure - Failure of the last attempt.
   * @param random - Returns a number in [0, 1).
   */
  delayMs(now: number, failure: Failure, random: () => number): number | undefined {
    this.#failures += 1;
    if (this.#failures >= this.#policy.maxAttempts || !isWorthRepeating(failure, this.#repeat)) {
      return undefined;
    }
    const pause = backoffMs(this.#policy, this.#failures, failure, random);
    return this.goOnAfter(now, failure, pause) ? pause : undefined;
  }
}

/**
 * Return a time in milliseconds.
 *
 * @throws InvalidRequest - The time is not finite, or not above 0.
 */
export function checkedTime(timeoutMs: number): number {
  if (!(timeoutMs > 0 && timeoutMs < Number.POSITIVE_INFINITY)) {
    throw invalidField(
      "timeoutMs",
      `it must be a number of milliseconds above 0, not ${timeoutMs}`,
    );
  }
  return timeoutMs;
}
