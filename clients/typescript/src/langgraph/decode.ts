/** Converts messages of the contract to the values that LangGraph.js expects. */

import { create } from "@bufbuild/protobuf";
import type { RunnableConfig } from "@langchain/core/runnables";
import { TASKS, maxChannelVersion } from "@langchain/langgraph-checkpoint";
import type {
  ChannelVersions,
  Checkpoint,
  CheckpointMetadata,
  CheckpointPendingWrite,
  CheckpointTuple,
  DeltaChannelHistory,
  SerializerProtocol,
} from "@langchain/langgraph-checkpoint";

import { messageOf, UnreadableValue } from "../errors.js";
import { CheckpointRefSchema } from "../gen/tuskpoint/v1/checkpoint_pb.js";
import type {
  Checkpoint as CheckpointMessage,
  CheckpointRef,
  CheckpointState,
} from "../gen/tuskpoint/v1/checkpoint_pb.js";
import type { DeltaChannelHistory as HistoryMessage } from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import type { Channel, PendingWrite, Value, Version } from "../gen/tuskpoint/v1/value_pb.js";
import { nextVersion } from "./versions.js";

const SENDS_IN_CHANNEL_SINCE = 4;

/** Return the config that names a checkpoint: three keys and no other key. */
export function decodeConfig(ref: CheckpointRef | undefined): RunnableConfig {
  return {
    configurable: {
      thread_id: ref?.threadId ?? "",
      checkpoint_ns: ref?.checkpointNs ?? "",
      checkpoint_id: ref?.checkpointId ?? "",
    },
  };
}

/**
 * Return the parent if its writes contain pending sends of the checkpoint.
 *
 * In layouts below 4 a checkpoint's sends are the parent's writes on the channel `__pregel_tasks`.
 */
export function parentWithSends(message: CheckpointMessage): CheckpointRef | undefined {
  const layout = message.state?.schemaVersion ?? SENDS_IN_CHANNEL_SINCE;
  return layout < SENDS_IN_CHANNEL_SINCE ? parentRef(message) : undefined;
}

/**
 * Return a checkpoint in the form of LangGraph.js.
 *
 * @param message - The checkpoint.
 * @param serde - The serializer that decodes the values.
 * @param sender - The parent whose writes contain the pending sends, if `parentWithSends` named a
 *   parent and the parent exists.
 * @throws UnreadableValue - A value has an encoding that the serializer does not read.
 */
export async function decodeTuple(
  message: CheckpointMessage,
  serde: SerializerProtocol,
  sender: CheckpointMessage | undefined,
): Promise<CheckpointTuple> {
  const parent = parentRef(message);
  const [checkpoint, pendingWrites] = await Promise.all([
    decodeCheckpoint(message, serde),
    decodeWrites(message.writes, serde),
  ]);
  if (sender !== undefined) {
    await takeOverSends(checkpoint, sender, serde);
  }
  return {
    config: decodeConfig(message.ref),
    checkpoint,
    metadata: decodeMetadata(message.metadataJson),
    ...(parent === undefined ? {} : { parentConfig: decodeConfig(parent) }),
    pendingWrites,
  };
}

/** Return the history of each channel; `seed` is absent if no seed is stored. */
export async function decodeHistory(
  channels: readonly string[],
  histories: readonly HistoryMessage[],
  serde: SerializerProtocol,
): Promise<Record<string, DeltaChannelHistory>> {
  const byChannel = new Map(histories.map((history) => [history.channel, history]));
  const decoded = channels.map(async (name) => {
    const history = byChannel.get(name);
    const writes = await decodeWrites(history?.writes ?? [], serde);
    const seed = history?.seed;
    return seed?.content.case === "value"
      ? ([name, { seed: await decodeValue(name, seed.content.value, serde), writes }] as const)
      : ([name, { writes }] as const);
  });
  return Object.fromEntries(await Promise.all(decoded));
}

function parentRef(message: CheckpointMessage): CheckpointRef | undefined {
  return message.parentCheckpointId === ""
    ? undefined
    : create(CheckpointRefSchema, {
        threadId: message.ref?.threadId ?? "",
        checkpointNs: message.ref?.checkpointNs ?? "",
        checkpointId: message.parentCheckpointId,
      });
}

async function decodeCheckpoint(
  message: CheckpointMessage,
  serde: SerializerProtocol,
): Promise<Checkpoint> {
  const state = message.state;
  const [extras, values] = await Promise.all([
    decodeExtras(state, serde),
    decodeChannels(state?.channels ?? [], serde),
  ]);
  return {
    ...extras,
    v: state?.schemaVersion ?? 0,
    id: message.ref?.checkpointId ?? "",
    ts: state?.ts ?? "",
    channel_values: values,
    channel_versions: decodeVersions(
      (state?.channels ?? []).map((channel) => [channel.name, channel.version]),
    ),
    versions_seen: Object.fromEntries(
      Object.entries(state?.versionsSeen ?? {}).map(([node, seen]) => [
        node,
        decodeVersions(Object.entries(seen.channels)),
      ]),
    ),
  };
}

/** Return the checkpoint's values beyond the keys that LangGraph.js names, as properties. */
async function decodeExtras(
  state: CheckpointState | undefined,
  serde: SerializerProtocol,
): Promise<Record<string, unknown>> {
  const extras = Object.entries(state?.extras ?? {}).map(
    async ([name, value]) => [name, await decodeValue(name, value, serde)] as const,
  );
  const updated = state?.updatedChannels;
  return {
    ...Object.fromEntries(await Promise.all(extras)),
    ...(updated === undefined ? {} : { updated_channels: updated.names }),
  };
}

async function decodeChannels(
  channels: readonly Channel[],
  serde: SerializerProtocol,
): Promise<Record<string, unknown>> {
  const values = channels.flatMap(({ name, content }) =>
    content.case === "value" ? [{ name, value: content.value }] : [],
  );
  const decoded = values.map(
    async ({ name, value }) => [name, await decodeValue(name, value, serde)] as const,
  );
  return Object.fromEntries(await Promise.all(decoded));
}

function decodeVersions(named: (readonly [string, Version | undefined])[]): ChannelVersions {
  return Object.fromEntries(
    named.flatMap(([name, version]) =>
      version === undefined ? [] : [[name, decodeVersion(version)] as const],
    ),
  );
}

async function takeOverSends(
  checkpoint: Checkpoint,
  sender: CheckpointMessage,
  serde: SerializerProtocol,
): Promise<void> {
  const writes = sender.writes.filter((write) => write.channel === TASKS);
  if (writes.length === 0) {
    return;
  }
  const versions = Object.values(checkpoint.channel_versions);
  const sends = await decodeWrites(writes, serde);
  checkpoint.channel_values[TASKS] = sends.map(([, , send]) => send);
  checkpoint.channel_versions[TASKS] =
    versions.length > 0 ? maxChannelVersion(...versions) : nextVersion(undefined);
}

function decodeMetadata(raw: Uint8Array): CheckpointMetadata {
  return JSON.parse(raw.length > 0 ? new TextDecoder().decode(raw) : "{}");
}

async function decodeWrites(
  writes: readonly PendingWrite[],
  serde: SerializerProtocol,
): Promise<CheckpointPendingWrite[]> {
  return Promise.all(
    writes.map(async ({ taskId, channel, content }): Promise<CheckpointPendingWrite> => {
      const value = content.case === "value" ? content.value : undefined;
      return [taskId, channel, value && (await decodeValue(channel, value, serde))];
    }),
  );
}

async function decodeValue(
  channel: string,
  { type, data }: Value,
  serde: SerializerProtocol,
): Promise<unknown> {
  if (type === "null" && data.length === 0) {
    return null; // Python's serializer has a type of its own for this value.
  }
  try {
    // Bytes are returned unchanged; these bytes are still a part of the received message, so they
    // are copied.
    return await serde.loadsTyped(type, type === "json" ? data : new Uint8Array(data));
  } catch (error) {
    throw unreadable(channel, type, error);
  }
}

function unreadable(channel: string, type: string, cause: unknown): UnreadableValue {
  const advice =
    type === "msgpack"
      ? "Python wrote it in an encoding of its own: use the portable serializer there, " +
        "TuskPointSaver(..., serde=PortableSerializer())"
      : "read the thread with the serializer that wrote it";
  const what = `channel '${channel}' has a value of type '${type}' that cannot be read`;
  return new UnreadableValue(`${what} (${messageOf(cause)}): ${advice}`, {
    status: "FAILED_PRECONDITION",
    metadata: { channel, type },
    cause,
  });
}

function decodeVersion({ kind }: Version): string | number {
  switch (kind.case) {
    case "text":
    case "number":
      return kind.value;
    case "integer":
      return Number(kind.value);
    case undefined:
      return 0;
  }
}
