/** Read-only records about checkpoints, built from messages of the contract. */

import { timestampDate, type Timestamp } from "@bufbuild/protobuf/wkt";

import type {
  BlobLocation,
  Checkpoint as CheckpointMessage,
  CheckpointRef,
  Lineage as LineageMessage,
} from "../gen/tuskpoint/v1/checkpoint_pb.js";
import type {
  Channel as ChannelMessage,
  PendingWrite,
  Version,
} from "../gen/tuskpoint/v1/value_pb.js";
import { decodeObject, decodeValue, type Json, type JsonObject } from "./json.js";
import { stepRecord, type StepRecord } from "./steps.js";
import { durabilityName, type DurabilityName } from "./words.js";

/** Identity of a checkpoint. */
export interface Reference {
  /** The thread. */
  readonly threadId: string;
  /** The namespace of the thread; empty is the root. */
  readonly checkpointNs: string;
  /** The checkpoint. */
  readonly checkpointId: string;
}

/** The location of stored bytes, and the hash that they must have. */
export interface Location {
  /** The blob; on Walrus, the quilt if `identifier` is set. */
  readonly blobId: string;
  /** Name of the patch inside the quilt; empty for a standalone blob. */
  readonly identifier: string;
  /** SHA-256 over the exact stored bytes, as lowercase hex. */
  readonly sha256: string;
  /** Number of stored bytes. */
  readonly size: bigint;
}

/** Origins of a checkpoint besides its parent; each "thread:checkpoint" or empty. */
export interface Lineage {
  /** The checkpoint that was forked. */
  readonly forkedFrom: string;
  /** The checkpoint that was rolled back to. */
  readonly rolledBackFrom: string;
  /** The checkpoint that was adopted. */
  readonly adoptedFrom: string;
}

/** One named slot of an agent's state, in its encoded form. */
export interface Channel {
  /** Name of the encoding of `data`; `undefined` if the channel has no value. */
  readonly type: string | undefined;
  /** The encoded value; `undefined` if the channel has no value. */
  readonly data: Uint8Array | undefined;
  /** Version of the content, in the kind in which it was saved; `undefined` without a version. */
  readonly version: string | bigint | number | undefined;
  /**
   * SHA-256 over the type, a zero byte and the data, as lowercase hex; empty if the channel has no
   * value.
   */
  readonly digest: string;
}

/** A value that a task wrote after the checkpoint and before the next checkpoint. */
export class Write {
  /** The task. */
  readonly taskId: string;
  /** Position of the task in the graph; may be empty. */
  readonly taskPath: string;
  /** Slot of the write within its task. */
  readonly idx: number;
  /** The channel that the task wrote to. */
  readonly channel: string;
  /** Name of the encoding of `data`. */
  readonly type: string;
  /** The encoded value. */
  readonly data: Uint8Array;

  /** @param message - The write, its value inline. */
  constructor(message: PendingWrite) {
    const value = message.content.case === "value" ? message.content.value : undefined;
    this.taskId = message.taskId;
    this.taskPath = message.taskPath;
    this.idx = message.idx ?? 0;
    this.channel = message.channel;
    this.type = value?.type ?? "";
    this.data = value?.data ?? new Uint8Array();
  }

  /**
   * The decoded value.
   *
   * @throws UnreadableValue - The value has another type than json, null or bytes.
   */
  get value(): Json | Uint8Array {
    return decodeValue(this.channel, this.type, this.data);
  }
}

/** A loaded checkpoint. */
export class CheckpointRecord {
  /** The thread. */
  readonly threadId: string;
  /** The namespace of the thread; empty is the root. */
  readonly checkpointNs: string;
  /** The checkpoint. */
  readonly checkpointId: string;
  /** Parent of the checkpoint; empty at the root. */
  readonly parentCheckpointId: string;
  /** The metadata that was saved with the checkpoint. */
  readonly metadata: JsonObject;
  /** One sentence about what happened. */
  readonly summary: string;
  /** Label of the checkpoint; empty without a label. */
  readonly label: string;
  /** Origins of the checkpoint besides its parent. */
  readonly lineage: Lineage;
  /** Position of the last change of the checkpoint in the thread's sequence. */
  readonly seq: bigint;
  /** Durability of that change. */
  readonly durability: DurabilityName;
  /**
   * Location of the segment that contains the checkpoint's state; `undefined` until it is stored.
   */
  readonly location: Location | undefined;
  /** Time of the first save. */
  readonly created: Date | undefined;
  /** The agent that drives the thread; empty if none was named. */
  readonly agentId: string;
  /** The encoded state; empty if the checkpoint was read without state. */
  readonly channels: ReadonlyMap<string, Channel>;
  /** The pending writes, in order; empty if the checkpoint was read without state. */
  readonly writes: readonly Write[];
  /**
   * What the step that led to the checkpoint did, and what comes next; `undefined` unless the
   * checkpoint was read with the view "step".
   */
  readonly step: StepRecord | undefined;

  /** @param message - The checkpoint, every value inline. */
  constructor(message: CheckpointMessage) {
    this.threadId = message.ref?.threadId ?? "";
    this.checkpointNs = message.ref?.checkpointNs ?? "";
    this.checkpointId = message.ref?.checkpointId ?? "";
    this.parentCheckpointId = message.parentCheckpointId;
    this.metadata = decodeObject(message.metadataJson);
    this.summary = message.summary;
    this.label = message.label;
    this.lineage = originsOf(message.lineage);
    this.seq = message.seq;
    this.durability = durabilityName(message.durability);
    this.location = locationOf(message.location);
    this.created = moment(message.createTime);
    this.agentId = message.agentId;
    const channels = message.state?.channels ?? [];
    this.channels = new Map(channels.map((one) => [one.name, channelOf(one)]));
    this.writes = message.writes.map((one) => new Write(one));
    this.step = message.step && stepRecord(message.step);
  }

  /**
   * The state, decoded at each use: one key per channel that has a value.
   *
   * Numbers are JavaScript numbers: an integer of another language beyond 2^53 - 1 is rounded,
   * except in a record that was read with the view "json", which shows it as `{"$int": "..."}`.
   *
   * @throws UnreadableValue - A channel has another type than json, null or bytes. `channels` has
   *   its bytes, and a read with the view "json" has its value as JSON.
   */
  get state(): Record<string, Json | Uint8Array> {
    const entries: [string, Json | Uint8Array][] = [];
    for (const [name, { type, data }] of this.channels) {
      if (type !== undefined && data !== undefined) {
        entries.push([name, decodeValue(name, type, data)]);
      }
    }
    // Assignment would fail for a channel with the name "__proto__".
    return Object.fromEntries(entries);
  }
}

/** Return the identity of a checkpoint as a record. */
export function referenceOf(message: CheckpointRef | undefined): Reference {
  const { threadId = "", checkpointNs = "", checkpointId = "" } = message ?? {};
  return { threadId, checkpointNs, checkpointId };
}

/** Return the origins of a checkpoint as a record. */
export function originsOf(message: LineageMessage | undefined): Lineage {
  const { forkedFrom = "", rolledBackFrom = "", adoptedFrom = "" } = message ?? {};
  return { forkedFrom, rolledBackFrom, adoptedFrom };
}

/** Return a blob's location as a record. */
export function locationOf(message: BlobLocation): Location;
export function locationOf(message: BlobLocation | undefined): Location | undefined;
export function locationOf(message: BlobLocation | undefined): Location | undefined {
  if (message === undefined) {
    return undefined;
  }
  return {
    blobId: message.blobId,
    identifier: message.identifier,
    sha256: Buffer.from(message.sha256).toString("hex"),
    size: message.sizeBytes,
  };
}

/** Return a timestamp as a date; `undefined` without a timestamp. */
export function moment(timestamp: Timestamp | undefined): Date | undefined {
  return timestamp === undefined ? undefined : timestampDate(timestamp);
}

function channelOf(message: ChannelMessage): Channel {
  const value = message.content.case === "value" ? message.content.value : undefined;
  return {
    type: value?.type,
    data: value?.data,
    version: versionOf(message.version),
    digest: Buffer.from(message.digest).toString("hex"),
  };
}

function versionOf(version: Version | undefined): string | bigint | number | undefined {
  return version?.kind.value;
}
