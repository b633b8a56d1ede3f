/** The attempts of a stream that resumes after a break. */

import { Attempts, RETRY_POLICY, type Repeat, type Times } from "./retry.js";

/** Time for which an interrupted stream tries to resume, in milliseconds. */
const RESUME_MS = 300_000;
/** An attempt that lasted longer, in milliseconds, was connected. */
const CONNECTED_MS = 30_000;

/**
 * The attempts of a stream that resumes after a break.
 *
 * The first connection has the retries of any call. After a connection that delivered something or
 * lasted a while, retries continue for five minutes. The time restarts after each such connection:
 * a watch may have nothing to deliver for hours.
 */
export class ResumeAttempts {
  readonly #deadlineMs: number;
  readonly #end: number;
  #attempts: Attempts;
  #hasDelivered = false;
  #begun = 0;

  /**
   * @param now - Time of the start on a monotonic clock, in milliseconds.
   * @param times - How long the first connection may take.
   * @param repeat - Whether it may be made twice.
   * @param wholeMs - How long all connections together may take.
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

  /** Note that a connection is about to be made; return the milliseconds it may take. */
  begin(now: number): number {
    this.#begun = now;
    return this.#attempts.remainingMs(now);
  }

  /** Note that the caller received an item; it is not requested again. */
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
