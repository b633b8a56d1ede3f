/** Streams that continue where they broke off: what was delivered, and what is requested next. Pure. */

import { clone, create, type MessageInitShape } from "@bufbuild/protobuf";

import { CheckpointAssembler, EventAssembler } from "./assembling.js";
import { ServerError, Unavailable } from "../errors.js";
import type { Checkpoint } from "../gen/tuskpoint/v1/checkpoint_pb.js";
import {
  AdoptStage,
  type AdoptHandoffRequest,
  type AdoptHandoffResponse,
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

/** A stream that may be begun again, with what was delivered of it. */
export interface Course<Request, Frame, Item> {
  /** Return the request for what was not delivered yet. */
  begin(): Request;
  /**
   * Take the next frame; return what is to be delivered now, if anything is.
   *
   * @throws ServerError - The frame breaks the contract.
   */
  take(frame: Frame): Item | undefined;
  /**
   * Take the end of the stream.
   *
   * @throws TuskPointError - It must not end here.
   */
  end(): void;
}

/** A replay; it continues after the last checkpoint that it delivered. */
export class ReplayCourse implements Course<ReplayThreadRequest, ReplayThreadResponse, Checkpoint> {
  readonly #request: ReplayThreadRequest;
  #assembler = new CheckpointAssembler();
  #delivered: { id: string; ns: string } | undefined;

  /** @param request - Where to begin. */
  constructor(request: MessageInitShape<typeof ReplayThreadRequestSchema>) {
    this.#request = clone(ReplayThreadRequestSchema, create(ReplayThreadRequestSchema, request));
  }

  begin(): ReplayThreadRequest {
    this.#assembler = new CheckpointAssembler();
    const request = clone(ReplayThreadRequestSchema, this.#request);
    if (this.#delivered !== undefined) {
      request.fromCheckpointId = this.#delivered.id;
    }
    return request;
  }

  take(frame: ReplayThreadResponse): Checkpoint | undefined {
    const complete = this.#assembler.add(frame.frame);
    if (complete === undefined) {
      return undefined;
    }
    const place = { id: complete.ref?.checkpointId ?? "", ns: complete.ref?.checkpointNs ?? "" };
    // The bound of the request includes its ID, which several namespaces may have.
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

/** A watch; it continues after the last cursor that it delivered, and never ends. */
export class WatchCourse implements Course<WatchThreadRequest, WatchThreadResponse, ThreadEvent> {
  readonly #request: WatchThreadRequest;
  #assembler = new EventAssembler();

  /** @param request - Where to begin. */
  constructor(request: MessageInitShape<typeof WatchThreadRequestSchema>) {
    this.#request = clone(WatchThreadRequestSchema, create(WatchThreadRequestSchema, request));
  }

  begin(): WatchThreadRequest {
    this.#assembler = new EventAssembler();
    return clone(WatchThreadRequestSchema, this.#request);
  }

  take(frame: WatchThreadResponse): ThreadEvent | undefined {
    const complete = this.#assembler.add(frame.frame);
    if (complete !== undefined) {
      this.#request.cursor = complete.cursor;
    }
    return complete;
  }

  end(): void {
    // A watch lasts as long as its thread, so that the end of a stream is a failure.
    throw new Unavailable("the server ended the watch", { status: "UNAVAILABLE" });
  }
}

/** An adoption; started again, it delivers only progress beyond what it has delivered. */
export class AdoptCourse
  implements Course<AdoptHandoffRequest, AdoptHandoffResponse, AdoptHandoffResponse>
{
  readonly #request: AdoptHandoffRequest;
  #stage = AdoptStage.UNSPECIFIED;
  #fetched = -1n;

  /** @param request - The request, with a request ID. */
  constructor(request: AdoptHandoffRequest) {
    this.#request = request;
  }

  begin(): AdoptHandoffRequest {
    return this.#request;
  }

  take(frame: AdoptHandoffResponse): AdoptHandoffResponse | undefined {
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

interface Place {
  readonly id: string;
  readonly ns: string;
}

/** Compare as the server does: by the bytes of UTF-8, which is the order of code points. */
function isAfter(place: Place, other: Place): boolean {
  const byId = Buffer.compare(Buffer.from(place.id), Buffer.from(other.id));
  const byNs = Buffer.compare(Buffer.from(place.ns), Buffer.from(other.ns));
  return byId > 0 || (byId === 0 && byNs > 0);
}
