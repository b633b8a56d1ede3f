/**
 * Converts the arguments of LangGraph.js to requests of the contract.
 *
 * Nothing here does I/O. These functions start every serialization before their first wait, because
 * the code of nodes may change the same objects afterwards.
 */

import { create } from "@bufbuild/protobuf";
import type { RunnableConfig } from "@langchain/core/runnables";
import { WRITES_IDX_MAP, getCheckpointId, isDeltaSnapshot } from "@langchain/langgraph-checkpoint";
import type {
  ChannelVersions,
  Checkpoint,
  CheckpointListOptions,
  CheckpointMetadata,
  PendingWrite,
  SerializerProtocol,
} from "@langchain/langgraph-checkpoint";

import { invalidField } from "../errors.js";
import {
  CheckpointRefSchema,
  CheckpointSchema,
  CheckpointStateSchema,
  View,
} from "../gen/tuskpoint/v1/checkpoint_pb.js";
import type {
  Checkpoint as CheckpointMessage,
  CheckpointRef,
  CheckpointState,
  Durability,
} from "../gen/tuskpoint/v1/checkpoint_pb.js";
import {
  GetDeltaHistoryRequestSchema,
  ListCheckpointsRequestSchema,
  SaveWritesRequestSchema,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import type {
  GetDeltaHistoryRequest,
  ListCheckpointsRequest,
  SaveWritesRequest,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import {
  ChannelSchema,
  EmptySchema,
  InheritSchema,
  PendingWriteSchema,
  ValueSchema,
  VersionSchema,
} from "../gen/tuskpoint/v1/value_pb.js";
import type { Channel, Value, Version } from "../gen/tuskpoint/v1/value_pb.js";
import { checkText } from "../messages/json.js";
import type { Saving } from "./summary.js";

/** Most writes in one request; the server's `ServerLimits.max_writes` is not lower. */
export const MAX_WRITES = 4096;

const MAX_LIMIT = 2 ** 32 - 1;

/** Keys of a checkpoint that the contract has fields for. */
const KNOWN_KEYS = new Set([
  "v",
  "id",
  "ts",
  "channel_values",
  "channel_versions",
  "versions_seen",
  "updated_channels",
]);

/** Return the thread that a config names, as text; `undefined` if the config names none. */
export function threadIdOf(config: RunnableConfig): string | undefined {
  const threadId: unknown = config.configurable?.["thread_id"];
  return threadId === undefined || threadId === null ? undefined : String(threadId);
}

/**
 * Return the checkpoint that a config names; without ID, the latest checkpoint of its namespace.
 *
 * @throws InvalidRequest - The config names no thread, or contains a text that is not Unicode.
 */
export function checkpointRef(config: RunnableConfig): CheckpointRef {
  const threadId = threadIdOf(config);
  if (threadId === undefined) {
    throw invalidField(
      "config.configurable.thread_id",
      'it must name a thread; pass { configurable: { thread_id: "..." } }',
    );
  }
  const checkpointNs = String(config.configurable?.["checkpoint_ns"] ?? "");
  const checkpointId = String(getCheckpointId(config));
  checkText("config.configurable.thread_id", threadId);
  checkText("config.configurable.checkpoint_ns", checkpointNs);
  checkText("config.configurable.checkpoint_id", checkpointId);
  return create(CheckpointRefSchema, { threadId, checkpointNs, checkpointId });
}

/**
 * Return a checkpoint as a message, with references to the parent's content for unchanged channels.
 *
 * Only channels in `newVersions`, and values without a version, are serialized. Without a parent,
 * channels that are not new have no content, because there is nothing to refer to. A fork of a
 * first checkpoint also has no parent and names no channel as new; it is sent whole.
 */
export async function encodeCheckpoint(
  saving: Saving,
  serde: SerializerProtocol,
): Promise<CheckpointMessage> {
  const { config, checkpoint, metadata, newVersions } = saving;
  const parent = checkpointRef(config);
  const values = checkpoint.channel_values;
  const versions = checkpoint.channel_versions;
  const isWhole = metadata.source === "fork" && parent.checkpointId === "";
  const defined = Object.keys(values).filter((name) => values[name] !== undefined);
  const channels = [...new Set([...Object.keys(versions), ...defined])].map((name) =>
    isWhole || Object.hasOwn(newVersions, name) || !Object.hasOwn(versions, name)
      ? encodeChannel(name, versions, values, serde)
      : unchangedChannel(name, versions, parent.checkpointId),
  );
  const frame = encodeFrame(checkpoint, metadata, serde);
  const metadataJson = encodeJson(metadata);
  const [state, contents] = await Promise.all([frame, Promise.all(channels)]);
  state.channels = contents;
  return create(CheckpointSchema, {
    ref: { ...parent, checkpointId: checkpoint.id },
    parentCheckpointId: parent.checkpointId,
    metadataJson,
    state,
  });
}

/**
 * Replace references to the parent by content, in place.
 *
 * @param names - The channels; `undefined` for all channels.
 */
export async function inlineChannels(
  message: CheckpointMessage | undefined,
  names: readonly string[] | undefined,
  checkpoint: Checkpoint,
  serde: SerializerProtocol,
): Promise<void> {
  const state = message?.state;
  if (state === undefined) {
    return;
  }
  state.channels = await Promise.all(
    state.channels.map(async (channel) =>
      channel.content.case === "inherit" && (names?.includes(channel.name) ?? true)
        ? encodeChannel(channel.name, checkpoint.channel_versions, checkpoint.channel_values, serde)
        : channel,
    ),
  );
}

/**
 * Return the requests that save the writes of a task: none if the task wrote nothing.
 *
 * @throws InvalidRequest - The config names no thread or no checkpoint.
 */
export async function writeRequests(
  config: RunnableConfig,
  writes: readonly PendingWrite[],
  taskId: string,
  taskPath: string,
  durability: Durability,
  serde: SerializerProtocol,
): Promise<SaveWritesRequest[]> {
  const ref = checkpointRef(config);
  if (ref.checkpointId === "") {
    throw invalidField(
      "config.configurable.checkpoint_id",
      "it must name a checkpoint_id, because writes belong to a checkpoint",
    );
  }
  const encoded = await Promise.all(
    writes.map(async ([channel, written], position) => {
      const value = await encodeValue(channel, written, serde);
      const idx = WRITES_IDX_MAP[channel] ?? position;
      const content = { case: "value" as const, value };
      return create(PendingWriteSchema, { taskId, taskPath, idx, channel, content });
    }),
  );
  const requests = [];
  for (let start = 0; start < encoded.length; start += MAX_WRITES) {
    const batch = encoded.slice(start, start + MAX_WRITES);
    requests.push(create(SaveWritesRequestSchema, { ref, writes: batch, durability }));
  }
  return requests;
}

/** Return the request of a listing; the limit is absent or above 0. */
export function listRequest(
  config: RunnableConfig,
  options: CheckpointListOptions,
): ListCheckpointsRequest {
  const threadId = threadIdOf(config);
  const checkpointNs: unknown = config.configurable?.["checkpoint_ns"];
  const { before, filter, limit } = options;
  return create(ListCheckpointsRequestSchema, {
    ...(threadId === undefined ? {} : { threadId }),
    ...(checkpointNs === undefined || checkpointNs === null
      ? {}
      : { checkpointNs: String(checkpointNs) }),
    ...(limit === undefined ? {} : { limit: Math.min(Math.ceil(limit), MAX_LIMIT) }),
    checkpointId: getCheckpointId(config),
    before: before === undefined ? "" : getCheckpointId(before),
    filterJson: filter === undefined ? new Uint8Array() : encodeJson(filter),
    view: View.FULL,
  });
}

/** Return the request for the history of channels. */
export function historyRequest(
  config: RunnableConfig,
  channels: readonly string[],
): GetDeltaHistoryRequest {
  return create(GetDeltaHistoryRequestSchema, {
    ref: checkpointRef(config),
    channels: [...new Set(channels)],
  });
}

async function encodeFrame(
  checkpoint: Checkpoint & { updated_channels?: unknown },
  metadata: CheckpointMetadata,
  serde: SerializerProtocol,
): Promise<CheckpointState> {
  const updated = checkpoint.updated_channels;
  const extras = Object.entries(checkpoint)
    .filter(([key, value]) => !KNOWN_KEYS.has(key) && value !== undefined)
    .map(async ([key, value]) => [key, await encodeValue(key, value, serde)] as const);
  const versionsSeen = Object.entries(checkpoint.versions_seen).map(([node, seen]) => {
    const channels = Object.entries(seen).map(([name, one]) => [name, encodeVersion(one)] as const);
    return [node, { channels: Object.fromEntries(channels) }] as const;
  });
  return create(CheckpointStateSchema, {
    schemaVersion: checkpoint.v,
    ts: checkpoint.ts,
    versionsSeen: Object.fromEntries(versionsSeen),
    ...(Array.isArray(updated) ? { updatedChannels: { names: updated.map(String) } } : {}),
    deltaChannels: deltaChannels(checkpoint, metadata),
    extras: Object.fromEntries(await Promise.all(extras)),
  });
}

/** Return the channels that LangGraph rebuilds from writes. */
function deltaChannels(checkpoint: Checkpoint, metadata: CheckpointMetadata): string[] {
  const counted = Object.keys(metadata.counters_since_delta_snapshot ?? {});
  const stored = Object.entries(checkpoint.channel_values)
    .filter(([, value]) => isDeltaSnapshot(value))
    .map(([name]) => name);
  return [...new Set([...counted, ...stored])];
}

async function encodeChannel(
  name: string,
  versions: ChannelVersions,
  values: Record<string, unknown>,
  serde: SerializerProtocol,
): Promise<Channel> {
  const value = Object.hasOwn(values, name) ? values[name] : undefined;
  // LangGraph.js does not distinguish a channel without a value from one whose value is undefined.
  const content =
    value === undefined
      ? { case: "empty" as const, value: create(EmptySchema) }
      : { case: "value" as const, value: await encodeValue(name, value, serde) };
  return create(ChannelSchema, { name, ...versionOf(name, versions), content });
}

function unchangedChannel(name: string, versions: ChannelVersions, parentId: string): Channel {
  const content =
    parentId === ""
      ? { case: "empty" as const, value: create(EmptySchema) }
      : { case: "inherit" as const, value: create(InheritSchema) };
  return create(ChannelSchema, { name, ...versionOf(name, versions), content });
}

function versionOf(name: string, versions: ChannelVersions): { version?: Version } {
  const version = Object.hasOwn(versions, name) ? versions[name] : undefined;
  return version === undefined ? {} : { version: encodeVersion(version) };
}

function encodeVersion(version: string | number): Version {
  if (typeof version === "string") {
    return create(VersionSchema, { kind: { case: "text", value: version } });
  }
  return Number.isSafeInteger(version)
    ? create(VersionSchema, { kind: { case: "integer", value: BigInt(version) } })
    : create(VersionSchema, { kind: { case: "number", value: version } });
}

async function encodeValue(
  channel: string,
  value: unknown,
  serde: SerializerProtocol,
): Promise<Value> {
  // Serializers return bytes unchanged, and the caller may change these bytes before they are sent.
  const kept = value instanceof Uint8Array ? new Uint8Array(value) : value;
  const [type, data] = await serde.dumpsTyped(kept);
  if (type === "json" && data.length === 0) {
    // Nothing could read this value again, nor the whole checkpoint.
    throw invalidField(
      channel,
      `a ${typeof value} cannot be written as JSON; keep it out of the state`,
    );
  }
  return create(ValueSchema, { type, data });
}

function encodeJson(value: Record<string, unknown>): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}
