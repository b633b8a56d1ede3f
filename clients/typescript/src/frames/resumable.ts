/**
 * Streams that resume after a break: remember the delivered part, and build the next request. Pure.
 */

import { clone, create, type MessageInitShape } from "@bufbuild/protobuf";

import { CheckpointAssembler, EventAssembler } from "./assembling.js";
import { ServerError, Unavailable } from "../errors.js";
import type { Checkpoint } from "../gen/tuskpoint/v1/checkpoint_pb.js";
import {
  AdoptStage,
  type AdoptHandoffRequest,
  type AdoptHandoffResponse,
  HandoffState,
  type WatchHandoffsRequest,
  type WatchHandoffsResponse,
} from "../gen/tuskpoint/v1/handoff_service_pb.js";
import {
  ReplayThreadRequestSchema,
  WatchThreadRequestSchema,
  type ReplayThreadRequest,
  type ReplayThreadResponse,
  type ThreadEvent,
  type WatchThreadRequest,
  type WatchThreadResponse,
} from "../gen/tuskpoint/v1/history_service_pb.js";

/** A stream that can be requested again, and the position up to which it was delivered. */
export interface Resumable<Request, Frame, Item> {
  /** Return the request for the rest of the stream. */
  nextRequest(): Request;
  /**
   * Add the next frame; return the item that the frame completes, if any.
   *
   * @throws ServerError - The frame breaks the contract.
   */
  add(frame: Frame): Item | undefined;
  /**
   * Check the end of the stream.
   *
   * @throws TuskPointError - The stream is incomplete.
   */
  end(): void;
}

/** A replay that resumes after the last checkpoint that it delivered. */
export class ReplayStream
  implements Resumable<ReplayThreadRequest, ReplayThreadResponse, Checkpoint>
{
  readonly #request: ReplayThreadRequest;
  #assembler = new CheckpointAssembler();
  #delivered: Place | undefined;

  /** @param request - The first request. */
  constructor(request: MessageInitShape<typeof ReplayThreadRequestSchema>) {
    this.#request = create(ReplayThreadRequestSchema, request);
  }

  nextRequest(): ReplayThreadRequest {
    this.#assembler = new CheckpointAssembler();
    const request = clone(ReplayThreadRequestSchema, this.#request);
    if (this.#delivered !== undefined) {
      request.fromCheckpointId = this.#delivered.id;
    }
    return request;
  }

  add(frame: ReplayThreadResponse): Checkpoint | undefined {
    const complete = this.#assembler.add(frame.frame);
    if (complete === undefined) {
      return undefined;
    }
    const place = { id: complete.ref?.checkpointId ?? "", ns: complete.ref?.checkpointNs ?? "" };
    // The request starts at this ID, inclusive, and several namespaces may have the ID.
    if (this.#delivered !== undefined && !isAfter(place, this.#delivered)) {
      return undefined;
    }
    this.#delivered = place;
    return complete;
  }

  end(): void {
    this.#assembler.end();
  }
}

/** A watch that resumes after the last cursor that it delivered, and never ends. */
export class WatchStream
  implements Resumable<WatchThreadRequest, WatchThreadResponse, ThreadEvent>
{
  readonly #request: WatchThreadRequest;
  #assembler = new EventAssembler();

  /** @param request - The first request. */
  constructor(request: WatchThreadRequest) {
    this.#request = request;
  }

  nextRequest(): WatchThreadRequest {
    this.#assembler = new EventAssembler();
    return clone(WatchThreadRequestSchema, this.#request);
  }

  add(frame: WatchThreadResponse): ThreadEvent | undefined {
    const complete = this.#assembler.add(frame.frame);
    if (complete !== undefined) {
      this.#request.cursor = complete.cursor;
    }
    return complete;
  }

  end(): void {
    // A watch has no end of its own.
    throw new Unavailable("the server ended the watch", { status: "UNAVAILABLE" });
  }
}

/** An adoption that delivers only new stages after a break. */
export class AdoptionStream
  implements Resumable<AdoptHandoffRequest, AdoptHandoffResponse, AdoptHandoffResponse>
{
  readonly #request: AdoptHandoffRequest;
  #stage = AdoptStage.UNSPECIFIED;
  #fetched = -1n;

  /** @param request - The request, with a request ID. */
  constructor(request: AdoptHandoffRequest) {
    this.#request = request;
  }

  nextRequest(): AdoptHandoffRequest {
    return this.#request;
  }

  add(frame: AdoptHandoffResponse): AdoptHandoffResponse | undefined {
    const isSame = frame.stage === this.#stage;
    if (frame.stage < this.#stage || (isSame && frame.fetchedBytes <= this.#fetched)) {
      return undefined;
    }
    this.#stage = frame.stage;
    this.#fetched = frame.fetchedBytes;
    return frame;
  }

  end(): void {
    if (this.#stage < AdoptStage.ADOPTED) {
      throw new ServerError("the server's stream ended without an adoption", {
        status: "INTERNAL",
      });
    }
  }
}

/** A watch of an inbox that never ends. After a break it delivers only new open offers. */
export class OfferStream
  implements Resumable<WatchHandoffsRequest, WatchHandoffsResponse, WatchHandoffsResponse>
{
  readonly #request: WatchHandoffsRequest;
  #open = new Set<string>();
  /** Open offers, until all have arrived again. */
  #listed: Set<string> | undefined;

  /** @param request - The request, for offers in all states. */
  constructor(request: WatchHandoffsRequest) {
    this.#request = request;
  }

  nextRequest(): WatchHandoffsRequest {
    this.#listed = new Set();
    return this.#request;
  }

  add(frame: WatchHandoffsResponse): WatchHandoffsResponse | undefined {
    if (frame.handoff === undefined) {
      if (this.#listed !== undefined) {
        const listed = this.#listed;
        this.#open = new Set([...this.#open].filter((id) => listed.has(id)));
        this.#listed = undefined;
      }
      return frame;
    }
    const { handoffId, state } = frame.handoff;
    if (state !== HandoffState.OFFERED) {
      this.#open.delete(handoffId);
      return frame;
    }
    this.#listed?.add(handoffId);
    if (this.#open.has(handoffId)) {
      return undefined;
    }
    this.#open.add(handoffId);
    return frame;
  }

  end(): void {
    // A watch has no end of its own.
    throw new Unavailable("the server ended the watch", { status: "UNAVAILABLE" });
  }
}

interface Place {
  readonly id: string;
  readonly ns: string;
}

/** Compare as the server does: by UTF-8 bytes, which is the order of code points. */
function isAfter(place: Place, other: Place): boolean {
  const byId = Buffer.compare(Buffer.from(place.id), Buffer.from(other.id));
  const byNs = Buffer.compare(Buffer.from(place.ns), Buffer.from(other.ns));
  return byId > 0 || (byId === 0 && byNs > 0);
}
