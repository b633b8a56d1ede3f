/** Large values on their way out: cut into chunks. Pure. */

import { create } from "@bufbuild/protobuf";

import type { Holder } from "./assembling.js";
import {
  SaveCheckpointsRequestSchema,
  type SaveCheckpointRequest,
  type SaveCheckpointsRequest,
  type SaveWritesRequest,
} from "./gen/tuskpoint/v1/checkpoint_service_pb.js";
import { LargeValueSchema } from "./gen/tuskpoint/v1/value_pb.js";

const MIB = 1024 * 1024;

/** Bytes of a value in one message. */
const CHUNK_BYTES = MIB;
/** Largest value that is sent inside the message that names it. */
const MAX_INLINE_VALUE_BYTES = MIB;
/** Most bytes of such values in one message. */
const MAX_INLINE_BYTES = 2 * MIB;

/** A save of either kind. */
export type Save = SaveCheckpointRequest | SaveWritesRequest;

/** Return whether a save may go as one message. */
export function fitsUnary(save: Save): boolean {
  return largePositions(holdersOf(save)).length === 0;
}

/**
 * Yield the frames of one save: the announcement, then the chunks of its large values.
 *
 * @param save - The save, every value inline. It is not changed.
 * @param saveId - Number of the save on its stream.
 */
export function* saveFrames(save: Save, saveId: bigint): Generator<SaveCheckpointsRequest> {
  const holders = holdersOf(save);
  const large = largePositions(holders);
  yield create(SaveCheckpointsRequestSchema, { saveId, frame: announcement(save, new Set(large)) });
  for (const [valueIndex, position] of large.entries()) {
    const data = dataOf(holders[position]);
    for (let offset = 0; offset < data.length; offset += CHUNK_BYTES) {
      const piece = data.subarray(offset, offset + CHUNK_BYTES);
      const chunk = { valueIndex, offset: BigInt(offset), data: piece };
      yield create(SaveCheckpointsRequestSchema, {
        saveId,
        frame: { case: "chunk", value: chunk },
      });
    }
  }
}

/** Return what can hold a value, in the order in which large values are numbered. */
function holdersOf(save: Save): Holder[] {
  return isCheckpoint(save)
    ? [...(save.checkpoint?.state?.channels ?? []), ...save.writes]
    : save.writes;
}

function isCheckpoint(save: Save): save is SaveCheckpointRequest {
  return save.$typeName === "tuskpoint.v1.SaveCheckpointRequest";
}

/** Return the positions, rising, of the holders whose values must be sent in chunks. */
function largePositions(holders: readonly Holder[]): number[] {
  const sizes = holders.map((holder) => dataOf(holder).length);
  const bySize = [...sizes.entries()].sort(([, one], [, other]) => other - one);
  let left = sizes.reduce((sum, size) => sum + size, 0);
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

function announcement(save: Save, large: ReadonlySet<number>): SaveCheckpointsRequest["frame"] {
  const announced = <H extends Holder>(holder: H, position: number): H => {
    if (!large.has(position) || holder.content.case !== "value") {
      return holder;
    }
    const { type, data } = holder.content.value;
    const value = create(LargeValueSchema, { type, sizeBytes: BigInt(data.length) });
    return { ...holder, content: { case: "large", value } };
  };
  if (!isCheckpoint(save)) {
    return { case: "writes", value: { ...save, writes: save.writes.map(announced) } };
  }
  const { checkpoint } = save;
  const channels = checkpoint?.state?.channels ?? [];
  const writes = save.writes.map((one, index) => announced(one, channels.length + index));
  if (checkpoint?.state === undefined) {
    return { case: "checkpoint", value: { ...save, writes } };
  }
  const state = { ...checkpoint.state, channels: channels.map(announced) };
  return { case: "checkpoint", value: { ...save, writes, checkpoint: { ...checkpoint, state } } };
}
