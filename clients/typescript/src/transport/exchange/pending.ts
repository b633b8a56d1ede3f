/** A call on an `Exchange` stream, from its start to its answer. */

import { setMaxListeners } from "node:events";

import { DeadlineExceeded, Unavailable, type TuskPointError } from "../../errors.js";
import type { Outgoing } from "../../frames/outgoing.js";
import type { Answer } from "../../gen/tuskpoint/v1/checkpoint_service_pb.js";
import { isWorthRepeating, type Attempts } from "../retry.js";
import { fromCallError } from "../status.js";

/** The last answer to a call. */
export type Result = Answer["result"];

/** Longest time, in milliseconds, that a timer of Node accepts. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * A call that waits for its answer. The answer, the deadline, the caller's signal or a failure ends
 * it.
 */
export class Pending {
  /** The call. */
  readonly outgoing: Outgoing;
  /** The last answer. */
  readonly result: Promise<Result>;
  readonly #attempts: Attempts;
  readonly #signal: AbortSignal | undefined;
  readonly #timer: NodeJS.Timeout;
  readonly #onAbort = () => this.fail(this.#signal?.reason);
  #resolve!: (result: Result) => void;
  #reject!: (reason: unknown) => void;
  #onTaken: (() => void) | undefined;
  #isSettled = false;
  #isOut = false;
  #isJournaled = false;

  /**
   * @param outgoing - The call.
   * @param attempts - The time limit of the call, and whether it may be sent twice.
   * @param signal - Ends the call.
   * @param target - The server, for errors.
   */
  constructor(
    outgoing: Outgoing,
    attempts: Attempts,
    signal: AbortSignal | undefined,
    target: string,
  ) {
    this.outgoing = outgoing;
    this.#attempts = attempts;
    this.#signal = signal;
    this.result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // The timer also keeps the process alive: the connection does not (see `Sessions`).
    const left = Math.min(MAX_TIMER_MS, Math.ceil(this.remainingMs()));
    this.#timer = setTimeout(() => this.fail(this.#attempts.last ?? expired(target)), left);
    if (signal !== undefined) {
      setMaxListeners(0, signal); // One signal may end any number of calls.
      signal.addEventListener("abort", this.#onAbort, { once: true });
    }
  }

  /** Whether the caller has the outcome of the call. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Whether the call may be sent twice. */
  get isSafe(): boolean {
    return this.#attempts.isSafe;
  }

  /** Whether the call is on a stream. */
  get isOut(): boolean {
    return this.#isOut;
  }

  /** Return the milliseconds until the deadline of the call. */
  remainingMs(): number {
    return this.#attempts.remainingMs(performance.now());
  }

  /** Run an action once no later change of the thread can overtake this call. */
  whenTaken(action: () => void): void {
    this.#onTaken = action;
  }

  /** Note that the frames of the call are on a stream. */
  sent(): void {
    this.#isOut = true;
  }

  /** Process the answer that the call is journaled; another answer follows. */
  journaled(): void {
    this.#isJournaled = true;
    this.#taken();
  }

  /** Process the last answer. */
  finish(result: Result): void {
    this.#settle();
    if (result.case === "error" && this.#isJournaled && !this.#attempts.isSafe) {
      // The save is stored: another attempt would store a second checkpoint.
      this.#reject(fromCallError(result.value));
    } else {
      this.#resolve(result);
    }
    this.#taken();
  }

  /** End without an answer. The sent part of the call may still take effect. */
  fail(reason: unknown): void {
    this.#settle();
    this.#reject(reason);
    if (!this.#isOut) {
      this.#taken();
    }
  }

  /** End for good: no stream carries the call after this. */
  drop(reason: unknown): void {
    this.#isOut = false;
    if (this.#isSettled) {
      this.#taken();
    } else {
      this.fail(reason);
    }
  }

  /**
   * Process the end of the stream that the call waited for or was sent on.
   *
   * @param failure - The cause of the end, which a retry can fix.
   * @param pauseMs - Milliseconds until the next stream is opened.
   * @returns Whether the call must be sent on the next stream. If not, the call has ended.
   */
  goesOn(failure: TuskPointError, pauseMs: number): boolean {
    const nothingStored = !this.#isJournaled && isWorthRepeating(failure, "unsafe");
    if (this.#isOut && !this.#attempts.isSafe && !nothingStored) {
      this.drop(unknownOutcome(failure));
    } else if (this.#isSettled || !this.#attempts.goOnAfter(performance.now(), failure, pauseMs)) {
      this.drop(failure);
    } else {
      this.#isOut = false;
      return true;
    }
    return false;
  }

  #settle(): void {
    this.#isSettled = true;
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this.#onAbort);
  }

  #taken(): void {
    const action = this.#onTaken;
    this.#onTaken = undefined;
    action?.();
  }
}

function expired(target: string): DeadlineExceeded {
  return new DeadlineExceeded(
    `${target} did not answer in time; what it journaled by then stays, and the same call may be ` +
      "repeated",
    { status: "DEADLINE_EXCEEDED" },
  );
}

/** Return the error for a save without an ID that may have been stored. */
function unknownOutcome(failure: TuskPointError): TuskPointError {
  return new Unavailable(
    "it is not known whether the checkpoint was saved: the connection ended before the answer, and " +
      "a save without an ID is not sent twice; list the thread, or give saves an ID " +
      `(${failure.message})`,
    { status: "UNAVAILABLE", reason: failure.reason, metadata: failure.metadata, cause: failure },
  );
}
