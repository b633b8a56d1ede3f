/**
 * The client's cache of values: loads name their digests, and the server leaves the values out.
 * Pure.
 */

import { createHash } from "node:crypto";

import { create } from "@bufbuild/protobuf";

import { ServerError } from "../errors.js";
import type { Checkpoint, CheckpointRef } from "../gen/tuskpoint/v1/checkpoint_pb.js";
import type {
  SaveCheckpointRequest,
  SaveWritesRequest,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import { ValueSchema, type PendingWrite, type Value } from "../gen/tuskpoint/v1/value_pb.js";
import type { Holder } from "./assembling.js";

/** Default bytes of values that a client keeps. */
export const DEFAULT_CACHE_BYTES = 16 * 1024 * 1024;
/** Smallest value that is kept: naming a digest costs 34 bytes in each load. */
const MIN_VALUE_BYTES = 1024;
/** Most digests that a load names. */
const MAX_DIGESTS = 256;
/** A value is kept only if its size is at most all bytes divided by this number. */
const SHARE = 4;

/** Return the digest that names a value; see `Channel.digest` in the contract. */
export function valueDigest(type: string, data: Uint8Array): Uint8Array {
  return createHash("sha256").update(`${type}\0`).update(data).digest();
}

/**
 * A copy of a value: callers cannot change its bytes, and it keeps no received message in memory.
 */
class CachedValue {
  readonly type: string;
  readonly data: Uint8Array;
  #digest: Uint8Array | undefined;

  constructor(value: Value) {
    this.type = value.type;
    this.data = new Uint8Array(value.data);
  }

  /** The digest, computed at its first use. */
  get digest(): Uint8Array {
    this.#digest ??= valueDigest(this.type, this.data);
    return this.#digest;
  }
}

/** Cached values that a load names. */
export class HeldValues {
  /** Digests of the values. */
  readonly digests: readonly Uint8Array[];
  readonly #values = new Map<string, CachedValue>();

  constructor(values: readonly CachedValue[] = []) {
    for (const value of values) {
      this.#values.set(keyOf(value.digest), value);
    }
    this.digests = [...this.#values.values()].map(({ digest }) => digest);
  }

  get(digest: Uint8Array): CachedValue | undefined {
    return digest.length === 0 ? undefined : this.#values.get(keyOf(digest));
  }

  /**
   * Put the values that the server left out into a checkpoint.
   *
   * @throws ServerError - The server left out a value that the load did not name.
   */
  fill(checkpoint: Checkpoint): void {
    for (const { holder, channel } of holdersOf(checkpoint)) {
      if (holder.content.case === undefined && holder.digest.length > 0) {
        const cached = this.get(holder.digest);
        if (cached === undefined) {
          throw new ServerError(
            `the server left out a value of "${channel}" that the client did not name; nothing of ` +
              "the checkpoint was used",
            { status: "INTERNAL" },
          );
        }
        const data = new Uint8Array(cached.data);
        const value = create(ValueSchema, { type: cached.type, data });
        holder.content = { case: "value", value };
        holder.sizeBytes = 0n;
      }
    }
  }
}

type Values = Map<string, CachedValue>;

/**
 * The larger values of the checkpoint that each thread saved or loaded last.
 *
 * The values of the least recently used thread are dropped first.
 */
export class ValueCache {
  readonly #maxBytes: number;
  /**
   * By thread and namespace, the most recently used at the end; then by channel, or position of a
   * write.
   */
  readonly #checkpoints = new Map<string, Values>();
  #size = 0;

  /** @param maxBytes - Most bytes of all values together; 0 keeps no values. */
  constructor(maxBytes: number = DEFAULT_CACHE_BYTES) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes of all values together. */
  get size(): number {
    return this.#size;
  }

  /** Return the values that a load of a thread names: the largest values if there are too many. */
  heldFor(ref: CheckpointRef): HeldValues {
    const place = placeOf(ref);
    const values = this.#checkpoints.get(place);
    if (values === undefined) {
      return new HeldValues();
    }
    this.#checkpoints.delete(place);
    this.#checkpoints.set(place, values);
    const kept = [...values.values()];
    if (kept.length > MAX_DIGESTS) {
      kept.sort((one, other) => other.data.length - one.data.length);
    }
    return new HeldValues(kept.slice(0, MAX_DIGESTS));
  }

  /** Add the values of a checkpoint that was saved with this ID. */
  addSaved(request: SaveCheckpointRequest, checkpointId: string): void {
    const { checkpoint, writes } = request;
    if (this.#maxBytes === 0 || checkpoint?.ref === undefined) {
      return;
    }
    const place = placeOf(checkpoint.ref);
    const before = this.#checkpoints.get(place);
    const values: Values = new Map();
    for (const [at, value] of before ?? []) {
      // Writes may be saved before their checkpoint.
      if (at.startsWith(writesOf(checkpointId))) {
        values.set(at, value);
      }
    }
    for (const { name, content } of checkpoint.state?.channels ?? []) {
      const kept = before?.get(channelAt(name));
      if (content.case === "value") {
        this.#keep(values, channelAt(name), content.value);
      } else if (content.case !== "empty" && kept !== undefined) {
        values.set(channelAt(name), kept);
      }
    }
    this.#keepWrites(values, checkpointId, writes);
    this.#put(place, values);
  }

  /** Add the values of saved writes. */
  addWritten({ ref, writes }: SaveWritesRequest): void {
    if (this.#maxBytes === 0 || ref === undefined) {
      return;
    }
    const values: Values = new Map(this.#checkpoints.get(placeOf(ref)));
    this.#keepWrites(values, ref.checkpointId, writes);
    this.#put(placeOf(ref), values);
  }

  /** Add the values of a checkpoint that was loaded whole. */
  addLoaded(checkpoint: Checkpoint, held: HeldValues): void {
    if (this.#maxBytes === 0 || checkpoint.ref === undefined) {
      return;
    }
    const values: Values = new Map();
    for (const { at, holder } of holdersOf(checkpoint)) {
      const cached = held.get(holder.digest);
      if (cached !== undefined) {
        values.set(at, cached);
      } else if (holder.content.case === "value") {
        this.#keep(values, at, holder.content.value);
      }
    }
    this.#put(placeOf(checkpoint.ref), values);
  }

  #keepWrites(values: Values, checkpointId: string, writes: readonly PendingWrite[]): void {
    for (const [position, write] of writes.entries()) {
      if (write.content.case === "value") {
        this.#keep(values, writeAt(checkpointId, position, write), write.content.value);
      }
    }
  }

  /**
   * Add a value if its size allows it; the previous value at the same position is outdated in any
   * case.
   */
  #keep(values: Values, at: string, value: Value): void {
    const { length } = value.data;
    values.delete(at);
    if (length >= MIN_VALUE_BYTES && length <= this.#maxBytes / SHARE) {
      values.set(at, new CachedValue(value));
    }
  }

  /** Replace the values of a thread and namespace, and drop others to make room. */
  #put(place: string, values: Values): void {
    this.#remove(place);
    const kept: Values = new Map();
    let size = 0;
    for (const [at, value] of values) {
      if (size + value.data.length <= this.#maxBytes) {
        kept.set(at, value);
        size += value.data.length;
      }
    }
    if (kept.size === 0) {
      return;
    }
    this.#checkpoints.set(place, kept);
    this.#size += size;
    for (const oldest of this.#checkpoints.keys()) {
      if (this.#size <= this.#maxBytes) {
        return;
      }
      this.#remove(oldest);
    }
  }

  #remove(place: string): void {
    for (const { data } of this.#checkpoints.get(place)?.values() ?? []) {
      this.#size -= data.length;
    }
    this.#checkpoints.delete(place);
  }
}

function keyOf(digest: Uint8Array): string {
  return Buffer.from(digest).toString("latin1");
}

function placeOf({ threadId, checkpointNs }: CheckpointRef): string {
  return JSON.stringify([threadId, checkpointNs]);
}

function channelAt(name: string): string {
  return `channel\0${name}`;
}

function writesOf(checkpointId: string): string {
  return `write\0${checkpointId}\0`;
}

function writeAt(checkpointId: string, position: number, write: PendingWrite): string {
  return `${writesOf(checkpointId)}${write.taskId}\0${write.idx ?? position}\0${write.channel}`;
}

/** Yield the parts that can contain a value, their position, and their channel. */
function* holdersOf(
  checkpoint: Checkpoint,
): Generator<{ at: string; holder: Holder; channel: string }> {
  for (const holder of checkpoint.state?.channels ?? []) {
    yield { at: channelAt(holder.name), holder, channel: holder.name };
  }
  const checkpointId = checkpoint.ref?.checkpointId ?? "";
  for (const [position, holder] of checkpoint.writes.entries()) {
    yield { at: writeAt(checkpointId, position, holder), holder, channel: holder.channel };
  }
}
