/** `Client.save`: chooses the parent and the versions, and leaves unchanged values out. */

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import type { Calls } from "../transport/calls.js";
import { newCheckpointId } from "../messages/checkpoint-ids.js";
import type { CallOptions } from "../transport/connection.js";
import { Conflict, invalidField, ThreadDeleted } from "../errors.js";
import { valueDigest } from "../frames/value-cache.js";
import type { Checkpoint, Durability } from "../gen/tuskpoint/v1/checkpoint_pb.js";
import {
  SaveCheckpointRequestSchema,
  type SaveCheckpointRequest,
  type SaveCheckpointResponse,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import {
  ChannelSchema,
  VersionSchema,
  type Channel,
  type Version,
} from "../gen/tuskpoint/v1/value_pb.js";

const MEMORY_SIZE = 1024;
/** The layout that LangGraph 1.x writes, and reads without migration. */
const STATE_LAYOUT = 4;
const LEADING_NUMBER = /^[0-9]+/;
/** Digits of a text version's number, and digits after its dot, as LangGraph writes them. */
const DIGITS = 32;
const TAIL = "0".repeat(16);

/** A save as the caller requested it. */
export interface Draft {
  readonly threadId: string;
  readonly checkpointNs: string;
  /** JSON text of each channel's value. */
  readonly values: ReadonlyMap<string, Uint8Array>;
  /** ID of the new checkpoint; `undefined` generates an ID. */
  readonly checkpointId: string | undefined;
  /**
   * Parent of the new checkpoint; `undefined` means `expectedHead` or the latest, empty means no
   * parent.
   */
  readonly parentId: string | undefined;
  /** ID that the latest checkpoint must have; `undefined` accepts any. */
  readonly expectedHead: string | undefined;
  readonly metadataJson: Uint8Array;
  readonly summary: string;
  readonly label: string;
  readonly agentId: string;
  readonly durability: Durability;
  readonly vector: readonly number[];
  readonly searchable: boolean | undefined;
}

/** What a client remembers of a checkpoint that the next checkpoint may follow. */
export interface Known {
  /** ID of the checkpoint; empty for no checkpoint. */
  readonly checkpointId: string;
  readonly parentId: string;
  readonly channels: ReadonlyMap<string, { version: Version; digest: Uint8Array }>;
  /** Whether the service stored other versions, because it chose another parent. */
  readonly isGuess?: boolean;
}

const NOTHING: Known = { checkpointId: "", parentId: "", channels: new Map() };

/** The last checkpoints that a client saved, one per thread and namespace. */
export class Memory {
  readonly #known = new Map<string, { threadId: string; known: Known }>();

  /** Return the last checkpoint of a namespace, if it is still remembered. */
  get(threadId: string, checkpointNs: string): Known | undefined {
    return this.#known.get(placeOf(threadId, checkpointNs))?.known;
  }

  /**
   * Remember the last checkpoint of a namespace. The least recently saved checkpoint may be
   * forgotten.
   */
  put(threadId: string, checkpointNs: string, known: Known): void {
    const place = placeOf(threadId, checkpointNs);
    this.#known.delete(place);
    this.#known.set(place, { threadId, known });
    const [oldest] = this.#known.keys();
    if (this.#known.size > MEMORY_SIZE && oldest !== undefined) {
      this.#known.delete(oldest);
    }
  }

  /** Forget all namespaces of a thread. */
  forget(threadId: string): void {
    for (const [place, one] of this.#known) {
      if (one.threadId === threadId) {
        this.#known.delete(place);
      }
    }
  }
}

function placeOf(threadId: string, checkpointNs: string): string {
  return JSON.stringify([threadId, checkpointNs]);
}

/**
 * Save a checkpoint.
 *
 * Without a parent or an expected head, the service chooses the parent: the latest checkpoint when
 * the save commits. Outdated memory of this client then does no harm.
 */
export async function save(
  draft: Draft,
  calls: Calls,
  memory: Memory,
  options: CallOptions,
): Promise<SaveCheckpointResponse> {
  const parent = await parentOf(draft, calls, memory, options);
  const request = requestOf(draft, parent);
  try {
    const inline = (names?: readonly string[]) => putInline(draft, request, names);
    const answer = await calls.saveInlining(request, inline, options);
    const sent = request.checkpoint;
    if (sent !== undefined) {
      const isGuess =
        request.continueLatest && answer.parentCheckpointId !== sent.parentCheckpointId;
      const checkpointId = answer.ref?.checkpointId ?? "";
      memory.put(draft.threadId, draft.checkpointNs, { ...knownOf(sent), checkpointId, isGuess });
    }
    return answer;
  } catch (error) {
    if (error instanceof Conflict || error instanceof ThreadDeleted) {
      memory.forget(draft.threadId);
    }
    throw error;
  }
}

/**
 * Return a version above all versions of a checkpoint, of the same kind.
 *
 * A checkpoint without versions starts with the text of 1. Text versions count up in their leading
 * number, zero-padded to the 32 digits that LangGraph writes.
 *
 * @throws InvalidRequest - The versions are of several kinds, or are texts that do not start with a
 *   number.
 */
export function nextVersion(versions: readonly Version[]): Version {
  const texts: string[] = [];
  const integers: bigint[] = [];
  const numbers: number[] = [];
  for (const { kind } of versions) {
    if (kind.case === "text") {
      texts.push(kind.value);
    } else if (kind.case === "integer") {
      integers.push(kind.value);
    } else if (kind.case === "number") {
      numbers.push(kind.value);
    }
  }
  const kinds = [texts, integers, numbers].filter((kind) => kind.length > 0).length;
  if (kinds === 0) {
    return textVersion(1n);
  }
  if (kinds === 1 && integers.length > 0) {
    const value = integers.reduce((most, one) => (one > most ? one : most)) + 1n;
    return create(VersionSchema, { kind: { case: "integer", value } });
  }
  if (kinds === 1 && numbers.length > 0) {
    const value = Math.trunc(numbers.reduce((most, one) => Math.max(most, one))) + 1;
    return create(VersionSchema, { kind: { case: "number", value } });
  }
  const newest = texts.reduce((most, one) => (one > most ? one : most), "");
  const number = LEADING_NUMBER.exec(newest);
  if (kinds !== 1 || number === null) {
    throw invalidField(
      "parentId",
      "its channel versions cannot be incremented; continue the thread with its framework",
    );
  }
  return textVersion(BigInt(number[0]) + 1n);
}

function textVersion(number: bigint): Version {
  const value = `${number.toString().padStart(DIGITS, "0")}.${TAIL}`;
  return create(VersionSchema, { kind: { case: "text", value } });
}

async function parentOf(
  draft: Draft,
  calls: Calls,
  memory: Memory,
  options: CallOptions,
): Promise<Known> {
  const { threadId, checkpointNs } = draft;
  const known = memory.get(threadId, checkpointNs);
  // A caller that names the expected head also names the parent.
  const wanted = draft.parentId ?? draft.expectedHead;
  if (wanted === undefined) {
    return known ?? NOTHING;
  }
  if (wanted === "") {
    return NOTHING;
  }
  if (known !== undefined && !known.isGuess && wanted === known.checkpointId) {
    return known;
  }
  const ref = { threadId, checkpointNs, checkpointId: wanted };
  const checkpoint = await calls.getCheckpoint(ref, options);
  return checkpoint === undefined ? { ...NOTHING, checkpointId: wanted } : knownOf(checkpoint);
}

/**
 * Put values into a request that has only their digests; without names, the values of all channels.
 */
function putInline(draft: Draft, request: SaveCheckpointRequest, names?: readonly string[]): void {
  for (const channel of request.checkpoint?.state?.channels ?? []) {
    const data = draft.values.get(channel.name);
    if (data !== undefined && (names?.includes(channel.name) ?? true)) {
      channel.content = contentOf(data);
    }
  }
}

function requestOf(draft: Draft, parent: Known): SaveCheckpointRequest {
  const raised = nextVersion([...parent.channels.values()].map((one) => one.version));
  const channels = [...draft.values].map(([name, data]) => channelOf(name, data, parent, raised));
  const isSavedAgain = draft.checkpointId === parent.checkpointId;
  const parentId = isSavedAgain ? parent.parentId : parent.checkpointId;
  const followsLatest = draft.parentId === undefined && draft.expectedHead === undefined;
  const changed = channels.filter((one) => one.content.case === "value").map((one) => one.name);
  const request: MessageInitShape<typeof SaveCheckpointRequestSchema> = {
    checkpoint: {
      ref: {
        threadId: draft.threadId,
        checkpointNs: draft.checkpointNs,
        checkpointId: draft.checkpointId || newCheckpointId(parent.checkpointId),
      },
      // No checkpoint has the parent "", so the service then sets the versions.
      parentCheckpointId: followsLatest && parent.isGuess ? "" : parentId,
      state: {
        schemaVersion: STATE_LAYOUT,
        ts: new Date().toISOString(),
        channels,
        updatedChannels: { names: changed },
      },
      metadataJson: draft.metadataJson,
      summary: draft.summary,
      label: draft.label,
    },
    durability: draft.durability,
    agentId: draft.agentId,
    vector: [...draft.vector],
  };
  return create(SaveCheckpointRequestSchema, {
    ...request,
    ...(followsLatest ? { continueLatest: true, raiseId: !draft.checkpointId } : {}),
    ...(draft.expectedHead === undefined ? {} : { expectedHead: draft.expectedHead }),
    ...(draft.searchable === undefined ? {} : { searchable: draft.searchable }),
  });
}

function channelOf(name: string, data: Uint8Array, parent: Known, raised: Version): Channel {
  const digest = valueDigest("json", data);
  const before = parent.channels.get(name);
  if (before !== undefined && Buffer.compare(digest, before.digest) === 0) {
    return create(ChannelSchema, { name, version: before.version, digest });
  }
  return create(ChannelSchema, { name, version: raised, digest, content: contentOf(data) });
}

function contentOf(data: Uint8Array): Channel["content"] {
  return { case: "value", value: { $typeName: "tuskpoint.v1.Value", type: "json", data } };
}

function knownOf(checkpoint: Checkpoint): Known {
  const channels = new Map<string, { version: Version; digest: Uint8Array }>();
  for (const { name, version, digest } of checkpoint.state?.channels ?? []) {
    if (version !== undefined) {
      channels.set(name, { version, digest });
    }
  }
  return {
    checkpointId: checkpoint.ref?.checkpointId ?? "",
    parentId: checkpoint.parentCheckpointId,
    channels,
  };
}
