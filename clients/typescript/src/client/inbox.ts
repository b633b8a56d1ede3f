/** Inboxes: offers of hand-offs. */

import { ServerError } from "../errors.js";
import { AdoptionStream, OfferStream } from "../frames/resumable.js";
import {
  AdoptStage,
  HandoffService,
  type Adoption as AdoptionMessage,
  type AdoptHandoffRequest,
} from "../gen/tuskpoint/v1/handoff_service_pb.js";
import {
  adoptingOffer,
  offerRecord,
  stateNumbers,
  watchingOffers,
  type Adoption,
  type AdoptOfferOptions,
  type AdoptOptions,
  type ListHandoffsOptions,
  type OfferRecord,
  type StageName,
  type WatchHandoffsOptions,
} from "../messages/handoff.js";
import { durability, nameOf } from "../messages/words.js";
import { emitWarnings } from "../transport/warnings.js";
import { BATCH, callOf, checkOptions, checkTexts } from "./arguments.js";
import { Leases } from "./leases.js";
import type { ChangeOptions } from "./options.js";

/** The part of the client that lists, watches, adopts and withdraws offers of hand-offs. */
export abstract class Inbox extends Leases {
  /** Yield the offers of hand-offs, oldest first. */
  async *listHandoffs(
    options: ListHandoffsOptions = {},
  ): AsyncGenerator<OfferRecord, void, undefined> {
    const { toAgent, threadId = "", states } = options;
    checkTexts({ threadId, ...(toAgent === undefined ? {} : { toAgent }) });
    const request = {
      ...(toAgent === undefined ? {} : { toAgent }),
      threadId,
      states: stateNumbers(states ?? []),
      pageSize: BATCH,
    };
    for (let pageToken = ""; ; ) {
      const call = callOf(options);
      const page = await this.raw.handoffs.listHandoffs({ ...request, pageToken }, call);
      emitWarnings(this.target, page.warnings);
      yield* page.handoffs.map(offerRecord);
      pageToken = page.nextPageToken;
      if (pageToken === "") {
        return;
      }
    }
  }

  /**
   * Yield the open offers to an agent, oldest first, then each new offer as it is made.
   *
   * The watch does not end. After a lost connection it starts again: it yields each open offer once
   * and misses none. Another agent may adopt an offer first: `adoptOffer` then throws
   * `PreconditionFailed`.
   *
   * @throws Unavailable - No server could be reached for minutes.
   */
  async *watchHandoffs(
    toAgent: string,
    options: WatchHandoffsOptions = {},
  ): AsyncGenerator<OfferRecord, void, undefined> {
    checkTexts({ toAgent });
    const states = new Set<number>(stateNumbers(options.states ?? ["offered"]));
    const stream = new OfferStream(watchingOffers(toAgent, options));
    const method = HandoffService.method.watchHandoffs;
    for await (const { handoff } of this.connection.resume(method, stream, callOf(options))) {
      if (handoff !== undefined && states.has(handoff.state)) {
        yield offerRecord(handoff);
      }
    }
  }

  /**
   * Create a thread from an open offer, which exactly one call can adopt.
   *
   * @param newThreadId - The thread to create. Default: the server generates a name.
   * @throws NotFound - The offer does not exist, or was removed with its thread.
   * @throws PreconditionFailed - The offer was adopted or withdrawn, or has expired. The metadata
   *   of the error has `state` and `adopted_thread_id`.
   * @throws AlreadyExists - The new thread has checkpoints.
   */
  async adoptOffer(
    handoffId: string,
    newThreadId = "",
    options: AdoptOfferOptions = {},
  ): Promise<Adoption> {
    checkTexts({ handoffId, newThreadId, requestId: options.requestId ?? "" });
    return this.adoptAs(adoptingOffer(handoffId, newThreadId, options), options);
  }

  /**
   * Withdraw an open offer, so that nobody adopts the offer; return the offer. Whoever has the
   * descriptor can still adopt by the descriptor.
   *
   * @throws NotFound - The offer does not exist, or was removed with its thread.
   * @throws PreconditionFailed - The offer was adopted, or has expired.
   */
  async withdrawHandoff(handoffId: string, options: ChangeOptions = {}): Promise<OfferRecord> {
    checkTexts({ handoffId });
    checkOptions(options);
    const request = { handoffId, durability: durability(options.durability) };
    const { handoff } = await this.raw.handoffs.withdrawHandoff(request, callOf(options));
    return offerRecord(handoff);
  }

  /** Follow an adoption to its end. */
  protected async adoptAs(request: AdoptHandoffRequest, options: AdoptOptions): Promise<Adoption> {
    let adoption: AdoptionMessage | undefined;
    const method = HandoffService.method.adoptHandoff;
    const stream = new AdoptionStream(request);
    for await (const frame of this.connection.resume(method, stream, callOf(options))) {
      adoption = frame.adoption ?? adoption;
      const stage = nameOf(AdoptStage, frame.stage) as StageName;
      options.onProgress?.({ stage, fetchedBytes: frame.fetchedBytes });
    }
    if (adoption === undefined || !adoption.verified) {
      const problem = "the server's stream ended without an adoption";
      throw new ServerError(problem, { status: "INTERNAL" });
    }
    const { adoptedFrom, newThreadId, checkpointId, blobId, verified, signer } = adoption;
    return { adoptedFrom, newThreadId, checkpointId, blobId, verified, signer };
  }
}
