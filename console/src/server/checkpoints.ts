/** Streams of checkpoints: each checkpoint is followed by the chunks of its large values. */
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import type { LoadCheckpointResponse } from "@contract/checkpoint_service_pb.js";
import {
  type Channel,
  type PendingWrite,
  type ValueChunk,
  ValueSchema,
} from "@contract/value_pb.js";

/** A message of LoadCheckpoint, ListCheckpoints or ReplayThread. */
export interface Framed {
  frame: LoadCheckpointResponse["frame"];
}

/** A value with missing chunks. */
interface Open {
  holder: Channel | PendingWrite;
  type: string;
  data: Uint8Array;
  filled: number;
}

/** Yield the checkpoints of a stream, with every value in place. */
export async function* wholeCheckpoints(
  messages: AsyncIterable<Framed>,
): AsyncGenerator<Checkpoint> {
  let current: Checkpoint | undefined;
  let open: Open[] = [];
  let index = 0;
  for await (const { frame } of messages) {
    if (frame.case === "checkpoint") {
      if (current) {
        throw broken("A checkpoint begins before the one before it is complete.");
      }
      current = frame.value;
      open = largeValues(current);
      index = 0;
    } else if (frame.case === "chunk") {
      add(open[index], index, frame.value);
    } else {
      throw broken("A message is empty.");
    }
    index = closeFull(open, index);
    if (current && index === open.length) {
      yield current;
      current = undefined;
    }
  }
  if (current) {
    throw broken("It ends before the last checkpoint is complete.");
  }
}

/** Return the only checkpoint of a stream. */
export async function onlyCheckpoint(messages: AsyncIterable<Framed>): Promise<Checkpoint> {
  let last: Checkpoint | undefined;
  for await (const checkpoint of wholeCheckpoints(messages)) {
    last = checkpoint;
  }
  if (!last) {
    throw broken("It has no checkpoint.");
  }
  return last;
}

function largeValues(checkpoint: Checkpoint): Open[] {
  const holders = [...(checkpoint.state?.channels ?? []), ...checkpoint.writes];
  return holders.flatMap((holder) => {
    if (holder.content.case !== "large") {
      return [];
    }
    const { type, sizeBytes } = holder.content.value;
    return [{ holder, type, data: new Uint8Array(Number(sizeBytes)), filled: 0 }];
  });
}

function add(open: Open | undefined, index: number, chunk: ValueChunk): void {
  const expected = open?.filled ?? 0;
  if (!open || chunk.valueIndex !== index || chunk.offset !== BigInt(expected)) {
    throw broken(`Chunk ${chunk.valueIndex} at ${chunk.offset} is not the next one.`);
  }
  if (chunk.data.length === 0 || expected + chunk.data.length > open.data.length) {
    throw broken(`Value ${index} does not have the size that was announced.`);
  }
  open.data.set(chunk.data, expected);
  open.filled += chunk.data.length;
}

/** Put complete values into their places; return the index of the first incomplete value. */
function closeFull(open: Open[], index: number): number {
  let next = index;
  for (let full = open[next]; full && full.filled === full.data.length; full = open[next]) {
    const { type, data } = full;
    full.holder.content = { case: "value", value: create(ValueSchema, { type, data }) };
    next += 1;
  }
  return next;
}

function broken(what: string): ConnectError {
  return new ConnectError(`The server's stream breaks the contract. ${what}`, Code.Internal);
}
