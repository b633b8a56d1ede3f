/**
 * The one retry policy: which failures are tried again, when, and until when.
 *
 * Nothing here does I/O or reads a clock; callers pass the time in.
 */

import { invalidField, type StatusName } from "../errors.js";

/**
 * Reasons with which the server guarantees that it stored nothing: even a call that must not be applied
 * twice may be sent again.
 */
const NOTHING_STORED: ReadonlySet<string> = new Set([
  "DRAINING",
  "JOURNAL_UNAVAILABLE",
  "BACKLOG_FULL",
]);

/**
 * Whether a call may be sent again when it is not known if the first one was applied: "safe" if
 * applying it twice is the same as applying it once.
 */
export type Repeat = "safe" | "unsafe";

/** Exponential backoff with full jitter. */
export interface RetryPolicy {
  /** Most attempts of one call, the first included; at least 1. */
  readonly maxAttempts: number;
  /** Upper bound of the first pause, in milliseconds. */
  readonly initialDelayMs: number;
  /** Growth of the bound from one pause to the next. */
  readonly multiplier: number;
  /** Bound that the growth ends at, in milliseconds. */
  readonly maxDelayMs: number;
}

/** The schedule of all clients. */
export const RETRY_POLICY: RetryPolicy = {
  maxAttempts: 64,
  initialDelayMs: 100,
  multiplier: 2,
  maxDelayMs: 2_000,
};

/** What a retry is decided by. */
export interface Failure {
  readonly status: StatusName;
  readonly reason: string;
  readonly retryAfterMs?: number | undefined;
}

/** How long the attempts of a call may take, in milliseconds after its start. */
export interface Times {
  /** From then on no new attempt begins. */
  readonly giveUpMs: number;
  /** Then an attempt that is under way ends. */
  readonly deadlineMs: number;
}

/**
 * Return whether a failed call can succeed by waiting, and may be sent again.
 *
 * `UNAVAILABLE` is repeated after AIP-194 (google.aip.dev/194). So is `CANCELLED`: what a caller
 * aborts is never looked at here, so the other side dropped the call. `RESOURCE_EXHAUSTED` is
 * repeated only if the server names a pause. `ABORTED` and `DEADLINE_EXCEEDED` never are: the one needs
 * a decision, the other has used up its time.
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
 * A pause that the server asked for is a floor to which the jitter is added, so that clients which
 * were refused together do not return together.
 *
 * @param policy - The schedule.
 * @param failures - Number of failures in a row, this one included.
 * @param failure - The last one.
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
   * @param times - How long it may take.
   * @param repeat - Whether it may be sent twice.
   */
  constructor(policy: RetryPolicy, now: number, times: Times, repeat: Repeat) {
    this.#policy = policy;
    this.#giveUp = now + times.giveUpMs;
    this.#deadline = now + times.deadlineMs;
    this.#repeat = repeat;
  }

  /** Whether the call may be sent again though the first one may have been applied. */
  get isSafe(): boolean {
    return this.#repeat === "safe";
  }

  /** What the last attempt failed with that was followed by another. */
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
   * @param failure - What the last attempt failed with.
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
