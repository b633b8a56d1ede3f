/** One `Exchange` stream: its messages and their answers. */

import { create } from "@bufbuild/protobuf";

import { ServerError, Unavailable } from "../../errors.js";
import {
  ExchangeRequestSchema,
  type Answer,
  type ExchangeRequest,
  type ExchangeResponse,
  type Frame,
  type Hello,
} from "../../gen/tuskpoint/v1/checkpoint_service_pb.js";
import type { Pending } from "./pending.js";

/** Most messages with unanswered saves. */
const MAX_MESSAGES = 2;
/** Most bytes of calls and chunks in a message, unless one call alone is larger. */
const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

/** Waiting calls, each kind in its order. A load may overtake the saves. */
export interface Queue {
  readonly saves: Pending[];
  readonly loads: Pending[];
}

/** Ends a stream that was opened with a token which has been replaced. */
export class Outdated extends Unavailable {
  constructor() {
    super("the token was replaced", { status: "UNAVAILABLE" });
  }
}

/** Saves that share a message. */
interface Batch {
  unanswered: number;
}

/**
 * One stream.
 *
 * There is no timer for batches: a save goes at once while fewer than two messages wait for
 * answers; otherwise all saves that have gathered go together. Loads always go at once: a load that
 * the server fetches from its blob store must not delay other calls.
 */
export class Stream {
  readonly #hello: Hello;
  readonly #queue: Queue;
  readonly #isOutdated: () => boolean;
  readonly #ending = new AbortController();
  readonly #sent = new Map<bigint, { readonly pending: Pending; batch: Batch | undefined }>();
  readonly #batches = new Set<Batch>();
  #lastId = 0n;
  #isDraining = false;
  #isHeld = false;
  #isOver = false;
  #wake: (() => void) | undefined;

  /**
   * @param hello - Names the session.
   * @param queue - The calls to send. The stream removes each call when it sends the call.
   * @param isOutdated - Returns whether the token of the stream was replaced.
   */
  constructor(hello: Hello, queue: Queue, isOutdated: () => boolean) {
    this.#hello = hello;
    this.#queue = queue;
    this.#isOutdated = isOutdated;
  }

  /** Signal that ends the stream, with `Outdated`. */
  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  /**
   * Yield the client's messages. The transport requests a message after it has written the last
   * one.
   */
  async *requests(): AsyncGenerator<ExchangeRequest, void, undefined> {
    let hello: Hello | undefined = this.#hello;
    while (await this.#mayWrite()) {
      this.#isHeld = this.#isOutdated();
      if (this.#isHeld) {
        if (this.#mayMove) {
          this.#ending.abort(new Outdated());
          return;
        }
        continue;
      }
      for (const frames of this.#batch()) {
        yield create(ExchangeRequestSchema, { frames, ...(hello && { hello }) });
        hello = undefined;
      }
    }
  }

  /** Check again whether a message may be written: a call was added, or an answer arrived. */
  look(): void {
    const wake = this.#wake;
    if (wake !== undefined && (this.#isReady || this.#isOver)) {
      this.#wake = undefined;
      // By then, all code that is running has added its calls too.
      setImmediate(wake);
    }
  }

  /**
   * Process a message of the server.
   *
   * @throws ServerError - The message breaks the contract.
   */
  take(response: ExchangeResponse): void {
    for (const answer of response.answers) {
      this.#takeAnswer(answer);
    }
    this.#isDraining ||= response.draining;
    this.look();
  }

  /**
   * End the stream; return the calls without a last answer, in the order in which they were sent.
   */
  end(): Pending[] {
    this.#isOver = true;
    this.look();
    return Array.from(this.#sent.values(), ({ pending }) => pending);
  }

  /**
   * Whether another stream may replace this stream: every save has an answer. Waits for
   * certification and loads restart, except the wait of a save that must not be sent twice.
   */
  get #mayMove(): boolean {
    const isBound = ({ pending }: { pending: Pending }) => !pending.isSafe && !pending.isSettled;
    return this.#batches.size === 0 && !Array.from(this.#sent.values()).some(isBound);
  }

  /** Whether a message may be written, or another stream may replace this stream. */
  get #isReady(): boolean {
    if (this.#isHeld && !this.#mayMove) {
      return false;
    }
    const { saves, loads } = this.#queue;
    const isFull = this.#batches.size >= MAX_MESSAGES;
    return !this.#isDraining && (loads.length > 0 || (saves.length > 0 && !isFull));
  }

  #takeAnswer({ id, last, result }: Answer): void {
    const sent = this.#sent.get(id);
    if (sent === undefined || !sent.pending.outgoing.isAnsweredBy(result)) {
      const problem = `protocol error: an answer to unknown frame ${id}; please report this`;
      throw new ServerError(problem, { status: "INTERNAL" });
    }
    const { pending, batch } = sent;
    sent.batch = undefined;
    if (batch !== undefined) {
      batch.unanswered -= 1;
      if (batch.unanswered === 0) {
        this.#batches.delete(batch);
      }
    }
    if (last) {
      this.#sent.delete(id);
      pending.finish(result);
    } else {
      pending.journaled();
    }
  }

  /** Wait until a message may be written; return false once the stream is over. */
  async #mayWrite(): Promise<boolean> {
    while (!this.#isOver && !this.#isReady) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    return !this.#isOver;
  }

  /**
   * Yield the frames of the next messages: all calls that may go and fit one message, or one call
   * with chunks.
   */
  *#batch(): Generator<Frame[]> {
    const batch: Batch = { unanswered: 0 };
    const maySave = this.#batches.size < MAX_MESSAGES;
    let frames: Frame[] = [];
    let size = 0;
    for (let next = this.#next(maySave, 0); next; next = this.#next(maySave, size)) {
      this.#lastId += 1n;
      next.sent();
      this.#sent.set(this.#lastId, {
        pending: next,
        batch: next.outgoing.saves ? batch : undefined,
      });
      if (next.outgoing.saves) {
        batch.unanswered += 1;
        this.#batches.add(batch);
      }
      for (const frame of next.outgoing.frames(this.#lastId, next.remainingMs())) {
        if (frames.length > 0 && size + frame.size > MAX_MESSAGE_BYTES) {
          yield frames;
          frames = [];
          size = 0;
        }
        frames.push(frame.frame);
        size += frame.size;
      }
    }
    if (frames.length > 0) {
      yield frames;
    }
  }

  /** Take the next call out of the queue, if the call fits a message of this size. */
  #next(maySave: boolean, size: number): Pending | undefined {
    const { saves, loads } = this.#queue;
    for (const queue of maySave ? [loads, saves] : [loads]) {
      for (let next = queue[0]; next !== undefined; next = queue[0]) {
        if (size > 0 && size + next.outgoing.size > MAX_MESSAGE_BYTES) {
          return undefined;
        }
        queue.shift();
        if (!next.isSettled) {
          return next;
        }
      }
    }
    return undefined;
  }
}
