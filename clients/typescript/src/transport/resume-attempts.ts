/** The attempts of a stream that resumes after a break. */

import { Attempts, RETRY_POLICY, type Repeat, type Times } from "./retry.js";

/** Time for which an interrupted stream tries to resume, in milliseconds. */
const RESUME_MS = 300_000;
/** Milliseconds after which an attempt counts as connected. */
const CONNECTED_MS = 30_000;

/**
 * The attempts of a stream that resumes after a break.
 *
 * The first connection has the retries of any call. After a connection that delivered an item or
 * lasted a while, retries continue for five minutes. The five minutes restart after each such
 * connection: a watch may have nothing to deliver for hours.
 */
export class ResumeAttempts {
  readonly #deadlineMs: number;
  readonly #end: number;
  #attempts: Attempts;
  #hasDelivered = false;
  #begun = 0;

  /**
   * @param now - Time of the start on a monotonic clock, in milliseconds.
   * @param times - Time limits of the first connection.
   * @param repeat - Whether the first connection may be made twice.
   * @param wholeMs - Time limit of all connections together.
   */
  constructor(
    now: number,
    times: Times,
    repeat: Repeat,
    wholeMs: number = Number.POSITIVE_INFINITY,
  ) {
    this.#deadlineMs = times.deadlineMs;
    this.#end = now + wholeMs;
    this.#attempts = new Attempts(RETRY_POLICY, now, times, repeat);
  }

  /** Note that a connection is about to start; return the milliseconds that it may take. */
  begin(now: number): number {
    this.#begun = now;
    return this.#attempts.remainingMs(now);
  }

  /** Note that the caller received an item; the item is not requested again. */
  delivered(): void {
    this.#hasDelivered = true;
  }

  /** Return the attempts that the next connection belongs to. */
  afterFailure(now: number): Attempts {
    if (this.#hasDelivered || now - this.#begun >= CONNECTED_MS) {
      this.#hasDelivered = false;
      const policy = { ...RETRY_POLICY, maxAttempts: Number.POSITIVE_INFINITY };
      const deadlineMs = Math.min(this.#deadlineMs, this.#end - now);
      const times = { giveUpMs: RESUME_MS, deadlineMs };
      this.#attempts = new Attempts(policy, now, times, "safe");
    }
    return this.#attempts;
  }
}
