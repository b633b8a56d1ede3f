/** Encodes calls as frames of an `Exchange` stream. Pure. */

import { create, toBinary, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { durationFromMs } from "@bufbuild/protobuf/wkt";

import { notEncodable, ResourceExhausted } from "../errors.js";
import {
  FrameSchema,
  GetCheckpointRequestSchema,
  SaveCheckpointRequestSchema,
  SaveWritesRequestSchema,
  type Answer,
  type Frame,
  type GetCheckpointRequest,
  type GetCheckpointResponse,
  type SaveCheckpointRequest,
  type SaveCheckpointResponse,
  type SaveWritesRequest,
  type SaveWritesResponse,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import { announce, chunksOf } from "./sending.js";

/** A call that a stream can carry. */
export type Call =
  | { readonly case: "save"; readonly value: SaveCheckpointRequest }
  | { readonly case: "writes"; readonly value: SaveWritesRequest }
  | { readonly case: "get"; readonly value: GetCheckpointRequest };

/** The answer to each kind of call. */
export interface Answers {
  readonly save: SaveCheckpointResponse;
  readonly writes: SaveWritesResponse;
  readonly get: GetCheckpointResponse;
}

/** Largest message that clients and servers accept, in bytes. */
export const MAX_MESSAGE_BYTES = 8 * 1024 * 1024;
/** Most bytes of a message besides its one call. */
const AROUND_BYTES = 256;

const RESULTS = { save: "saved", writes: "written", get: "got" } as const;

/** A call that is encoded once, however often it is sent. */
export class Outgoing {
  /** Size of the call in bytes, without the large values. */
  readonly size: number;
  /** Values that follow the call in chunks. */
  readonly values: readonly Uint8Array[];
  /** The thread that the call changes; `undefined` if it changes none. */
  readonly threadId: string | undefined;
  /** The case of the answer in its message. */
  readonly result: (typeof RESULTS)[Call["case"]];
  readonly #encoded: NonNullable<Frame["$unknown"]>;

  /**
   * @param call - The call, every value inline.
   * @throws InvalidRequest - A field of the call cannot be encoded.
   * @throws ResourceExhausted - The call does not fit a message, even with its large values in
   *   chunks.
   */
  constructor(call: Call) {
    this.result = RESULTS[call.case];
    this.threadId = threadOf(call);
    const { data, values } = encoded(call);
    // A message that is too large would end the stream, and with it the calls of other callers.
    if (data.length + AROUND_BYTES > MAX_MESSAGE_BYTES) {
      throw new ResourceExhausted(
        `the call has ${data.length} bytes without the values that are sent in chunks, and a message ` +
          `has at most ${MAX_MESSAGE_BYTES}: save less in metadata and identifiers`,
        { status: "RESOURCE_EXHAUSTED" },
      );
    }
    this.values = values;
    this.size = data.length;
    // `toBinary` writes encoded fields unchanged, like unknown fields.
    const no = FrameSchema.field[call.case].number;
    this.#encoded = [{ no, wireType: WireType.LengthDelimited, data }];
  }

  /**
   * Yield the frame of the call, then the frames of its chunks.
   *
   * @param id - Number of the call on its stream.
   * @param timeoutMs - Time that the call may take, in milliseconds.
   */
  *frames(id: bigint, timeoutMs: number): Generator<{ frame: Frame; size: number }> {
    const timeout = durationFromMs(Math.max(1, Math.ceil(timeoutMs)));
    const frame = create(FrameSchema, { id, timeout });
    frame.$unknown = this.#encoded;
    yield { frame, size: this.size };
    for (const value of chunksOf(this.values)) {
      const chunk = create(FrameSchema, { id, call: { case: "chunk", value } });
      yield { frame: chunk, size: value.data.length };
    }
  }

  /** Whether the call changes a thread. */
  get saves(): boolean {
    return this.threadId !== undefined;
  }

  /** Return whether an answer has the case that answers this call. */
  isAnsweredBy(result: Answer["result"]): boolean {
    return result.case === this.result || result.case === "error";
  }
}

function threadOf(call: Call): string | undefined {
  switch (call.case) {
    case "save":
      return call.value.checkpoint?.ref?.threadId ?? "";
    case "writes":
      return call.value.ref?.threadId ?? "";
    case "get":
      return undefined;
  }
}

function encoded(call: Call): { data: Uint8Array; values: readonly Uint8Array[] } {
  switch (call.case) {
    case "save": {
      const { save, values } = announce(call.value);
      return { data: bytesOf(SaveCheckpointRequestSchema, save), values };
    }
    case "writes": {
      const { save, values } = announce(call.value);
      return { data: bytesOf(SaveWritesRequestSchema, save), values };
    }
    case "get":
      return { data: bytesOf(GetCheckpointRequestSchema, call.value), values: [] };
  }
}

/** Return a message with its length in front, as in a length-delimited field. */
function bytesOf<T extends DescMessage>(schema: T, message: MessageShape<T>): Uint8Array {
  try {
    return new BinaryWriter().bytes(toBinary(schema, message)).finish();
  } catch (cause) {
    throw notEncodable(cause);
  }
}
