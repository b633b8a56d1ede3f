/** Cuts large values into chunks to send. Pure. */

import { create } from "@bufbuild/protobuf";

import type { Holder } from "./assembling.js";
import type {
  SaveCheckpointRequest,
  SaveWritesRequest,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import {
  LargeValueSchema,
  ValueChunkSchema,
  type ValueChunk,
} from "../gen/tuskpoint/v1/value_pb.js";

const MIB = 1024 * 1024;

/** Bytes of a value in one chunk. */
const CHUNK_BYTES = MIB;
/** Largest value that is sent inline in its message. */
const MAX_INLINE_VALUE_BYTES = MIB;
/** Most bytes of inline values in one message. */
const MAX_INLINE_BYTES = 2 * MIB;

/** A save of either kind. */
export type Save = SaveCheckpointRequest | SaveWritesRequest;

/** A save without its large values, and the bytes of the large values in order. */
export interface Announced<S extends Save> {
  /** The save, with the type and the size of each large value. */
  readonly save: S;
  /** The large values; none if the save fits a message as it is. */
  readonly values: readonly Uint8Array[];
}

/**
 * Take the large values out of a save.
 *
 * @param save - The save, every value inline. It is not changed.
 */
export function announce<S extends Save>(save: S): Announced<S> {
  const holders = holdersOf(save);
  const large = largePositions(holders);
  if (large.length === 0) {
    return { save, values: [] };
  }
  const values = large.map((position) => dataOf(holders[position]));
  return { save: withoutValues(save, new Set(large)) as S, values };
}

/** Yield the chunks of large values in the order of the stream. */
export function* chunksOf(values: readonly Uint8Array[]): Generator<ValueChunk> {
  for (const [valueIndex, value] of values.entries()) {
    for (let offset = 0; offset < value.length; offset += CHUNK_BYTES) {
      const data = value.subarray(offset, offset + CHUNK_BYTES);
      yield create(ValueChunkSchema, { valueIndex, offset: BigInt(offset), data });
    }
  }
}

/** Return the parts of a save that can contain a value, in the order that numbers large values. */
function holdersOf(save: Save): Holder[] {
  return isCheckpoint(save)
    ? [...(save.checkpoint?.state?.channels ?? []), ...save.writes]
    : save.writes;
}

function isCheckpoint(save: Save): save is SaveCheckpointRequest {
  return save.$typeName === "tuskpoint.v1.SaveCheckpointRequest";
}

/** Return the ascending positions of the parts whose values must be sent in chunks. */
function largePositions(holders: readonly Holder[]): number[] {
  const sizes = holders.map((holder) => dataOf(holder).length);
  let left = sizes.reduce((sum, size) => sum + size, 0);
  if (left <= MAX_INLINE_VALUE_BYTES) {
    return [];
  }
  const bySize = [...sizes.entries()].sort(([, one], [, other]) => other - one);
  const large: number[] = [];
  for (const [position, size] of bySize) {
    if (size <= MAX_INLINE_VALUE_BYTES && left <= MAX_INLINE_BYTES) {
      break;
    }
    large.push(position);
    left -= size;
  }
  return large.sort((one, other) => one - other);
}

const NOTHING = new Uint8Array();

function dataOf(holder: Holder | undefined): Uint8Array {
  return holder?.content.case === "value" ? holder.content.value.data : NOTHING;
}

function withoutValues(save: Save, large: ReadonlySet<number>): Save {
  const announced = <H extends Holder>(holder: H, position: number): H => {
    if (!large.has(position) || holder.content.case !== "value") {
      return holder;
    }
    const { type, data } = holder.content.value;
    const value = create(LargeValueSchema, { type, sizeBytes: BigInt(data.length) });
    return { ...holder, content: { case: "large", value } };
  };
  if (!isCheckpoint(save)) {
    return { ...save, writes: save.writes.map(announced) };
  }
  const { checkpoint } = save;
  const channels = checkpoint?.state?.channels ?? [];
  const writes = save.writes.map((one, index) => announced(one, channels.length + index));
  if (checkpoint?.state === undefined) {
    return { ...save, writes };
  }
  const state = { ...checkpoint.state, channels: channels.map(announced) };
  return { ...save, writes, checkpoint: { ...checkpoint, state } };
}
