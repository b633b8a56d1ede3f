/**
 * Carries the saves, writes and loads of all callers of a client on two streams.
 *
 * Large calls have a stream of their own, so that no small save queues behind them.
 */

import type { Outgoing } from "../../frames/outgoing.js";
import type { Attempts } from "../retry.js";
import { Lane, type Opener } from "./lane.js";
import { Pending, type Result } from "./pending.js";

/** Size of a call, in bytes, above which the call is large. */
const LARGE_BYTES = 256 * 1024;

/** The changes of one thread in progress, which use one stream at a time. */
interface Turn {
  lane: Lane;
  underWay: number;
  readonly waiting: { readonly lane: Lane; readonly pending: Pending }[];
}

/** The two streams of a client. */
export class Exchange {
  readonly #small: Lane;
  readonly #large: Lane;
  readonly #turns = new Map<string, Turn>();
  readonly #target: string;

  /** @param opener - Opens the streams. */
  constructor(opener: Opener) {
    this.#target = opener.target;
    this.#small = new Lane(opener);
    this.#large = new Lane(opener);
  }

  /**
   * Make a call; return its last answer, which may be a refusal.
   *
   * After a break, the call is sent again where that is safe. Changes of one thread take effect in
   * the order of the calls.
   *
   * @param outgoing - The call.
   * @param attempts - The time limit of the call, and whether it may be sent twice.
   * @param signal - Ends the call.
   */
  call(outgoing: Outgoing, attempts: Attempts, signal: AbortSignal | undefined): Promise<Result> {
    const pending = new Pending(outgoing, attempts, signal, this.#target);
    const isLarge = outgoing.values.length > 0 || outgoing.size > LARGE_BYTES;
    const lane = isLarge ? this.#large : this.#small;
    if (outgoing.threadId === undefined) {
      lane.add(pending);
    } else {
      this.#addInTurn(outgoing.threadId, lane, pending);
    }
    return pending.result;
  }

  #addInTurn(threadId: string, lane: Lane, pending: Pending): void {
    const turn = this.#turns.get(threadId) ?? { lane, underWay: 0, waiting: [] };
    this.#turns.set(threadId, turn);
    turn.waiting.push({ lane, pending });
    this.#advance(threadId, turn);
  }

  /** Release the changes of a thread whose stream may carry them. */
  #advance(threadId: string, turn: Turn): void {
    for (let next = turn.waiting[0]; next !== undefined; next = turn.waiting[0]) {
      const { lane, pending } = next;
      if (turn.underWay > 0 && turn.lane !== lane && !pending.isSettled) {
        return;
      }
      turn.waiting.shift();
      if (!pending.isSettled) {
        turn.lane = lane;
        turn.underWay += 1;
        pending.whenTaken(() => {
          turn.underWay -= 1;
          this.#advance(threadId, turn);
        });
        lane.add(pending);
      }
    }
    if (turn.underWay === 0) {
      this.#turns.delete(threadId);
    }
  }
}
