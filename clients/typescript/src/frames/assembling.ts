/** Assembles received large values from their chunks. Pure. */

import { create } from "@bufbuild/protobuf";

import { ServerError } from "../errors.js";
import type { Checkpoint } from "../gen/tuskpoint/v1/checkpoint_pb.js";
import type {
  DeltaChannelHistory,
  GetDeltaHistoryResponse,
  LoadCheckpointResponse,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import type { ThreadEvent, WatchThreadResponse } from "../gen/tuskpoint/v1/history_service_pb.js";
import {
  ValueSchema,
  type Channel,
  type LargeValue,
  type PendingWrite,
  type ValueChunk,
} from "../gen/tuskpoint/v1/value_pb.js";

/** A message that can contain a value. */
export type Holder = Channel | PendingWrite;

/** Frames of the streams that carry checkpoints. */
export type CheckpointFrame = LoadCheckpointResponse["frame"];

/** The large values of one message, filled in the order of their chunks. */
class Filling {
  readonly #open: readonly { holder: Holder; large: LargeValue }[];
  #index = 0;
  #pieces: Uint8Array[] = [];
  #size = 0;

  constructor(holders: readonly Holder[] = []) {
    this.#open = holders.flatMap((holder) =>
      holder.content.case === "large" ? [{ holder, large: holder.content.value }] : [],
    );
    this.#closeFull();
  }

  get isFull(): boolean {
    return this.#index === this.#open.length;
  }

  add(chunk: ValueChunk): void {
    const current = this.#open[this.#index];
    if (current === undefined) {
      throw violation("a chunk that was not announced");
    }
    if (chunk.valueIndex !== this.#index || chunk.offset !== BigInt(this.#size)) {
      throw violation(
        `a chunk of value ${chunk.valueIndex} at ${chunk.offset} where value ${this.#index} at ` +
          `${this.#size} was due`,
      );
    }
    if (chunk.data.length === 0) {
      throw violation("an empty chunk");
    }
    this.#pieces.push(chunk.data);
    this.#size += chunk.data.length;
    const announced = current.large.sizeBytes;
    if (BigInt(this.#size) > announced) {
      throw violation(`more than the ${announced} bytes of value ${this.#index}`);
    }
    this.#closeFull();
  }

  #closeFull(): void {
    let current = this.#open[this.#index];
    while (current !== undefined && BigInt(this.#size) === current.large.sizeBytes) {
      const data = new Uint8Array(Buffer.concat(this.#pieces, this.#size));
      const value = create(ValueSchema, { type: current.large.type, data });
      current.holder.content = { case: "value", value };
      this.#pieces = [];
      this.#size = 0;
      this.#index += 1;
      current = this.#open[this.#index];
    }
  }
}

/** Turns frames into complete messages, with every value inline. */
class Assembler<Whole> {
  readonly #kind: string;
  #current: Whole | undefined;
  #filling = new Filling();

  /** @param kind - Name of the message in errors. */
  constructor(kind: string) {
    this.#kind = kind;
  }

  begin(whole: Whole, holders: readonly Holder[]): Whole | undefined {
    if (this.#current !== undefined) {
      throw violation(`${this.#kind} in the middle of another's values`);
    }
    this.#current = whole;
    this.#filling = new Filling(holders);
    return this.#taken();
  }

  fill(chunk: ValueChunk): Whole | undefined {
    this.#filling.add(chunk);
    return this.#taken();
  }

  end(): void {
    if (this.#current !== undefined) {
      throw violation(`the end in the middle of ${this.#kind}'s values`);
    }
  }

  #taken(): Whole | undefined {
    if (!this.#filling.isFull) {
      return undefined;
    }
    const complete = this.#current;
    this.#current = undefined;
    return complete;
  }
}

/** Turns frames into complete checkpoints, with every value inline. */
export class CheckpointAssembler {
  readonly #assembler = new Assembler<Checkpoint>("a checkpoint");

  /**
   * Add the next frame; return the checkpoint that the frame completes, if any.
   *
   * @throws ServerError - The frame breaks the contract.
   */
  add(frame: CheckpointFrame): Checkpoint | undefined {
    switch (frame.case) {
      case "checkpoint":
        return this.#assembler.begin(frame.value, holdersOf(frame.value));
      case "chunk":
        return this.#assembler.fill(frame.value);
      default:
        throw violation("an empty frame");
    }
  }

  /**
   * Check the end of the stream.
   *
   * @throws ServerError - A checkpoint is incomplete.
   */
  end(): void {
    this.#assembler.end();
  }
}

/** Turns frames into complete events, with every value of their checkpoints inline. */
export class EventAssembler {
  readonly #assembler = new Assembler<ThreadEvent>("an event");

  /**
   * Add the next frame; return the event that the frame completes, if any.
   *
   * @throws ServerError - The frame breaks the contract.
   */
  add(frame: WatchThreadResponse["frame"]): ThreadEvent | undefined {
    switch (frame.case) {
      case "event":
        return this.#assembler.begin(frame.value, holdersOf(frame.value.checkpoint));
      case "chunk":
        return this.#assembler.fill(frame.value);
      default:
        throw violation("an empty frame");
    }
  }
}

/** Turns frames of `GetDeltaHistory` into one complete history per channel. */
export class DeltaHistoryAssembler {
  readonly #assembler = new Assembler<DeltaChannelHistory>("a history");
  readonly #whole = new Map<string, DeltaChannelHistory>();
  #last = "";

  /**
   * Add the next frame.
   *
   * @throws ServerError - The frame breaks the contract.
   */
  add(frame: GetDeltaHistoryResponse["frame"]): void {
    switch (frame.case) {
      case "history": {
        const { seed, writes } = frame.value;
        const holders = seed === undefined ? writes : [seed, ...writes];
        this.#merge(this.#assembler.begin(frame.value, holders));
        break;
      }
      case "chunk":
        this.#merge(this.#assembler.fill(frame.value));
        break;
      default:
        throw violation("an empty frame");
    }
  }

  /**
   * Check the end of the stream; return the histories in the order of arrival.
   *
   * @throws ServerError - A history is incomplete.
   */
  end(): DeltaChannelHistory[] {
    this.#assembler.end();
    return [...this.#whole.values()];
  }

  #merge(part: DeltaChannelHistory | undefined): void {
    if (part === undefined) {
      return;
    }
    const whole = this.#whole.get(part.channel);
    if (whole === undefined) {
      this.#whole.set(part.channel, part);
    } else if (part.seed !== undefined) {
      throw violation(`a second seed for channel '${part.channel}'`);
    } else if (part.channel !== this.#last) {
      throw violation(`more of channel '${part.channel}' after another channel`);
    } else {
      whole.writes = whole.writes.concat(part.writes);
    }
    this.#last = part.channel;
  }
}

/**
 * Return the parts of a checkpoint that can contain values, in the order that numbers large values.
 */
function holdersOf(checkpoint: Checkpoint | undefined): Holder[] {
  return checkpoint === undefined
    ? []
    : [...(checkpoint.state?.channels ?? []), ...checkpoint.writes];
}

function violation(what: string): ServerError {
  return new ServerError(
    `the server's stream breaks the contract: ${what}; nothing of it was used`,
    { status: "INTERNAL" },
  );
}
