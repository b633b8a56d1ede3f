/** One session of `Exchange`: the waiting calls, and the streams that carry them. */

import { randomBytes } from "node:crypto";

import { create } from "@bufbuild/protobuf";

import { TuskPointError, Unavailable } from "../../errors.js";
import {
  HelloSchema,
  type ExchangeRequest,
  type ExchangeResponse,
} from "../../gen/tuskpoint/v1/checkpoint_service_pb.js";
import { backoffMs, isWorthRepeating, RETRY_POLICY } from "../retry.js";
import { isUntrusted } from "../status.js";
import { Outdated, Stream, type Queue } from "./stream.js";
import type { Pending } from "./pending.js";

/** Opens streams. */
export interface Opener {
  /** Address of the server, or addresses of the servers. */
  readonly target: string;
  /**
   * Open a stream, which fails with the errors of `errors.ts`, or with the reason of the signal.
   */
  readonly open: (
    requests: AsyncIterable<ExchangeRequest>,
    signal: AbortSignal,
  ) => AsyncIterable<ExchangeResponse>;
  /** Return the token that a new stream would use. */
  readonly token: () => string | undefined;
  /** Wait for some milliseconds; fail if the client is closed. */
  readonly pause: (ms: number) => Promise<void>;
}

/**
 * Carries calls in order on one stream at a time; the first call opens the stream.
 *
 * After a break, the unanswered calls go first on the next stream.
 */
export class Lane {
  readonly #opener: Opener;
  readonly #session = randomBytes(16);
  #attempt = 0n;
  #queue: Queue = { saves: [], loads: [] };
  #open: Stream | undefined;
  #failures = 0;
  #isRunning = false;

  /** @param opener - Opens the streams. */
  constructor(opener: Opener) {
    this.#opener = opener;
  }

  /** Send a call after all that were added before. */
  add(pending: Pending): void {
    this.#push(pending);
    this.#open?.look();
    if (!this.#isRunning) {
      this.#isRunning = true;
      void this.#run();
    }
  }

  /** Open streams while calls wait. Failures go to the calls; the method itself never fails. */
  async #run(): Promise<void> {
    while (this.#calls().some((one) => !one.isSettled)) {
      const shown = this.#opener.token();
      const failure = await this.#stream(shown);
      const pauseMs = this.#afterFailure(failure, shown);
      if (pauseMs > 0 && this.#calls().length > 0) {
        await this.#opener.pause(pauseMs).catch((closed: unknown) => this.#end(closed));
      }
    }
    this.#isRunning = false;
  }

  /** Open a stream with a token and serve it until it ends; return the cause of the end. */
  async #stream(shown: string | undefined): Promise<unknown> {
    this.#attempt += 1n;
    const hello = create(HelloSchema, { session: this.#session, attempt: this.#attempt });
    const stream = new Stream(hello, this.#queue, () => this.#opener.token() !== shown);
    this.#open = stream;
    try {
      for await (const response of this.#opener.open(stream.requests(), stream.signal)) {
        this.#failures = 0;
        stream.take(response);
      }
      return new Unavailable("the server ended the stream", { status: "UNAVAILABLE" });
    } catch (error) {
      return error;
    } finally {
      this.#open = undefined;
      this.#requeue([...stream.end(), ...this.#calls()]);
    }
  }

  /**
   * Fail the calls that the end of a stream ends.
   *
   * @param failure - The cause of the end.
   * @param shown - The token with which the stream was opened.
   * @returns Milliseconds until the next stream may be opened.
   */
  #afterFailure(failure: unknown, shown: string | undefined): number {
    if (failure instanceof TuskPointError) {
      const pauseMs = this.#pauseMs(failure, shown);
      if (pauseMs !== undefined) {
        this.#keep((one) => one.goesOn(failure, pauseMs));
        return pauseMs;
      }
    }
    this.#end(failure);
    return 0;
  }

  #pauseMs(failure: TuskPointError, shown: string | undefined): number | undefined {
    const isRefused = failure.status === "UNAUTHENTICATED";
    if (failure instanceof Outdated || (isRefused && this.#opener.token() !== shown)) {
      return 0; // The token was replaced while the stream was open.
    }
    if (!isWorthRepeating(failure, "safe") || isUntrusted(failure)) {
      return undefined;
    }
    this.#failures += 1;
    return backoffMs(RETRY_POLICY, this.#failures, failure, Math.random);
  }

  /** End the calls that a permanent failure concerns: the sent calls, if any were sent. */
  #end(failure: unknown): void {
    const wasSent = this.#calls().some((one) => one.isOut);
    this.#keep((one) => {
      const isConcerned = one.isOut || !wasSent;
      if (isConcerned) {
        one.drop(failure);
      }
      return !isConcerned;
    });
  }

  #calls(): Pending[] {
    return [...this.#queue.saves, ...this.#queue.loads];
  }

  #push(pending: Pending): void {
    (pending.outgoing.saves ? this.#queue.saves : this.#queue.loads).push(pending);
  }

  #requeue(calls: readonly Pending[]): void {
    this.#queue = { saves: [], loads: [] };
    for (const call of calls) {
      this.#push(call);
    }
  }

  /** Keep the calls for which `test` returns true, in front of calls that are added meanwhile. */
  #keep(test: (one: Pending) => boolean): void {
    const calls = this.#calls();
    this.#requeue([]);
    const kept = calls.filter(test);
    this.#requeue([...kept, ...this.#calls()]);
  }
}
