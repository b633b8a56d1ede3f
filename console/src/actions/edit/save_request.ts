/** The request that saves an edited value as a new checkpoint. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Checkpoint, Durability } from "@contract/checkpoint_pb.js";
import type { SaveCheckpointRequestSchema } from "@contract/checkpoint_service_pb.js";
import type { Json } from "../../parts/json/json_tree.tsx";
import { nextVersion } from "./editable_value.ts";

export interface Edit {
  channel: string;
  /** The new value of the channel: JSON without white space. */
  value: string;
  durability: Durability;
  /** The head of the namespace that the page showed; undefined: any. */
  expectedHead: string | undefined;
}

/** Return the reason why an edit of a checkpoint cannot be saved; undefined: it can be saved. */
export function refusalOf(checkpoint: Checkpoint): string | undefined {
  const channels = checkpoint.state?.channels ?? [];
  if (!nextVersion(channels)) {
    return (
      "The versions of its channels cannot be counted up, because the program that made them uses " +
      "another scheme. Change the state with that program."
    );
  }
  const delta = new Set(checkpoint.state?.deltaChannels);
  const touched = checkpoint.writes.find((write) => delta.has(write.channel));
  if (touched) {
    return (
      `Writes of a task wait on the delta channel "${touched.channel}", and a new checkpoint would ` +
      "repeat them. Change the state with update_state of its graph."
    );
  }
  return undefined;
}

/**
 * Return the request that saves `edit` on top of a checkpoint, as `update_state` of LangGraph does.
 *
 * All other channels keep content and version, and `versions_seen` stays unchanged, so that the
 * graph next runs the same tasks as before the edit. `updated_channels` stays absent, as
 * `update_state` leaves it; with it, LangGraph would run only nodes that wait for one of the named
 * channels.
 *
 * @param checkpoint - The checkpoint in `VIEW_FULL`, without a refusal by `refusalOf`.
 */
export function saveRequest(
  checkpoint: Checkpoint,
  edit: Edit,
  now = new Date(),
): MessageInitShape<typeof SaveCheckpointRequestSchema> {
  const { ref, state } = checkpoint;
  if (!ref || !state) {
    throw new Error("The checkpoint was read without its state.");
  }
  const version = { kind: nextVersion(state.channels) ?? { case: undefined } };
  const data = new TextEncoder().encode(edit.value);
  const channels = state.channels.map((one) => {
    if (one.name === edit.channel) {
      const content = { case: "value" as const, value: { type: "json", data } };
      return { name: one.name, version, content };
    }
    const kept = one.content.case === "empty" ? "empty" : "inherit";
    const content = { case: kept, value: {} } as const;
    return one.version
      ? { name: one.name, version: one.version, content }
      : { name: one.name, content };
  });
  return {
    checkpoint: {
      ref: { threadId: ref.threadId, checkpointNs: ref.checkpointNs, checkpointId: "" },
      parentCheckpointId: ref.checkpointId,
      state: {
        schemaVersion: state.schemaVersion,
        ts: now.toISOString().replace("Z", "+00:00"),
        channels,
        versionsSeen: state.versionsSeen,
        deltaChannels: state.deltaChannels,
        extras: state.extras,
      },
      metadataJson: new TextEncoder().encode(JSON.stringify(metadata(checkpoint))),
    },
    durability: edit.durability,
    ...(edit.expectedHead === undefined ? {} : { expectedHead: edit.expectedHead }),
  };
}

function metadata(checkpoint: Checkpoint): Json {
  const text = new TextDecoder().decode(checkpoint.metadataJson) || "{}";
  const before = JSON.parse(text) as { [key: string]: Json };
  const { step, parents, counters_since_delta_snapshot: counters } = before;
  const after: { [key: string]: Json } = {
    source: "update",
    step: typeof step === "number" ? step + 1 : 0,
    parents: parents ?? {},
  };
  if (counters && typeof counters === "object" && !Array.isArray(counters)) {
    // LangGraph counts the updates and steps since it last stored a whole delta channel.
    after["counters_since_delta_snapshot"] = Object.fromEntries(
      Object.entries(counters).map(([name, pair]) => [name, oneStepMore(pair)]),
    );
  }
  return after;
}

function oneStepMore(pair: Json): Json {
  const [updates, steps] = Array.isArray(pair) ? pair : [];
  return typeof steps === "number" ? [updates ?? 0, steps + 1] : pair;
}
