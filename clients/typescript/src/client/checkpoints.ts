/** Saving, loading, listing and labelling checkpoints. */

import { create } from "@bufbuild/protobuf";

import { invalidField, NotFound } from "../errors.js";
import {
  ListCheckpointsRequestSchema,
  type ListCheckpointsRequest,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import { encodeObject, encodeState } from "../messages/json.js";
import { CheckpointRecord, type Reference } from "../messages/records.js";
import { components } from "../messages/search.js";
import { durability, durabilityName, source, view } from "../messages/words.js";
import { callOf, checkTexts, notFound, refOf } from "./arguments.js";
import { Base } from "./base.js";
import type { LabelOptions, ListOptions, LoadOptions, Saved, SaveOptions } from "./options.js";
import { save } from "./saving.js";

/** Most threads that the error about a checkpoint in several threads names. */
const MAX_NAMED = 5;

/** The part of the client that saves and loads checkpoints. */
export abstract class Checkpoints extends Base {
  /**
   * Save a checkpoint.
   *
   * Each key of the state is a channel with a value of type `json`. A value that equals the
   * parent's is not sent again and keeps its version; a changed value gets a version above all
   * versions of the parent. A state may have any size: large values are sent in chunks.
   *
   * @param threadId - The thread. Its first checkpoint creates it.
   * @param state - Channel to a value that JSON can represent.
   * @throws InvalidRequest - JSON cannot represent the state (`metadata.field` is the path of the
   *   value that JSON cannot represent), or an argument breaks its limits.
   * @throws Conflict - The latest checkpoint is not `expectedHead`.
   * @throws ThreadDeleted - `parentId` belongs to a deleted thread.
   */
  async save(
    threadId: string,
    state: Readonly<Record<string, unknown>>,
    options: SaveOptions = {},
  ): Promise<Saved> {
    const { checkpointNs = "", summary = "", label = "", agentId = "" } = options;
    checkTexts({ threadId, checkpointNs, summary, label, agentId });
    const draft = {
      threadId,
      checkpointNs,
      values: encodeState(state),
      checkpointId: options.checkpointId,
      parentId: options.parentId,
      expectedHead: options.expectedHead,
      metadataJson: encodeObject("metadata", options.metadata),
      summary,
      label,
      agentId,
      durability: durability(options.durability),
      vector: components("vector", options.vector ?? []),
      searchable: options.searchable,
    };
    const saved = await save(draft, this.calls, this.memory, callOf(options));
    return {
      checkpointId: saved.ref?.checkpointId ?? "",
      durability: durabilityName(saved.durability),
      seq: saved.seq,
    };
  }

  /**
   * Load one checkpoint exactly, whatever its size.
   *
   * @param threadId - The thread. `undefined`: the only thread that has the checkpoint; the options
   *   then need a `checkpointId`, and `checkpointNs` may be left out for any namespace.
   * @throws NotFound - The checkpoint does not exist.
   * @throws InvalidRequest - Neither a thread nor a checkpoint is named, or several threads have
   *   the checkpoint, because forks and copies keep IDs; the message names the threads.
   * @throws PreconditionFailed - `source` is "blob" and the checkpoint is not certified.
   * @throws DataLoss - The blob does not have the recorded hash.
   */
  async load(threadId: string | undefined, options: LoadOptions = {}): Promise<CheckpointRecord> {
    const ref = threadId === undefined ? await this.#find(options) : refOf(threadId, options);
    const checkpoint = await this.calls.getCheckpoint(ref, {
      ...callOf(options),
      view: view(options.view),
      source: source(options.source),
    });
    if (checkpoint === undefined) {
      throw notFound(ref);
    }
    return new CheckpointRecord(checkpoint);
  }

  /** Return the only checkpoint with an ID, in any thread. */
  async #find(options: LoadOptions): Promise<Reference> {
    const call = callOf(options);
    const { checkpointId = "", checkpointNs } = options;
    if (checkpointId === "") {
      throw invalidField("threadId", "pass a threadId, a checkpointId, or both");
    }
    const references: Reference[] = [];
    const filter = { checkpointId, checkpointNs, limit: MAX_NAMED + 1 };
    for await (const { ref } of this.calls.listCheckpoints(listing(undefined, filter), call)) {
      if (ref !== undefined) {
        references.push(ref);
      }
    }
    return onlyOne(checkpointId, references);
  }

  /** Yield checkpoints, latest first; none if the thread does not exist. */
  async *list(
    threadId: string | undefined,
    options: ListOptions = {},
  ): AsyncGenerator<CheckpointRecord, void, undefined> {
    const request = listing(threadId, options);
    for await (const checkpoint of this.calls.listCheckpoints(request, callOf(options))) {
      yield new CheckpointRecord(checkpoint);
    }
  }

  /**
   * Name a checkpoint, or clear its name with an empty label; return its ID.
   *
   * @throws NotFound - The checkpoint does not exist.
   */
  async setLabel(threadId: string, label: string, options: LabelOptions = {}): Promise<string> {
    checkTexts({ label });
    const request = {
      ref: refOf(threadId, options),
      label,
      durability: durability(options.durability),
    };
    const labelled = await this.raw.checkpoints.setLabel(request, callOf(options));
    return labelled.ref?.checkpointId ?? "";
  }
}

/**
 * Return the only checkpoint with an ID; throw if no checkpoint or several checkpoints have the ID.
 */
function onlyOne(checkpointId: string, found: readonly Reference[]): Reference {
  const [first, ...others] = found;
  if (first === undefined) {
    throw new NotFound(
      `checkpoint '${checkpointId}' not found in any thread; list(undefined) lists all checkpoints`,
      {
        status: "NOT_FOUND",
        reason: "CHECKPOINT_NOT_FOUND",
        metadata: { checkpoint_id: checkpointId },
      },
    );
  }
  if (others.length > 0) {
    const names = found.slice(0, MAX_NAMED).map(({ threadId, checkpointNs }) => {
      return `'${threadId}'${checkpointNs && ` (namespace '${checkpointNs}')`}`;
    });
    const list = [...names, ...(found.length > MAX_NAMED ? ["..."] : [])].join(", ");
    const problem = `checkpoint '${checkpointId}' is in ${list}: name one of these threads`;
    throw invalidField("threadId", problem);
  }
  const { threadId, checkpointNs } = first;
  return { threadId, checkpointNs, checkpointId };
}

function listing(threadId: string | undefined, options: ListOptions): ListCheckpointsRequest {
  const { checkpointNs, checkpointId = "", before = "", label = "", limit } = options;
  if (limit !== undefined && !(Number.isInteger(limit) && limit >= 0 && limit < 2 ** 32)) {
    throw invalidField("limit", `it must be a whole number, 0 or more, not ${limit}`);
  }
  return create(ListCheckpointsRequestSchema, {
    ...(threadId === undefined ? {} : { threadId }),
    ...(checkpointNs === undefined ? {} : { checkpointNs }),
    checkpointId,
    before,
    filterJson: encodeObject("metadata", options.metadata),
    label,
    ...(limit === undefined ? {} : { limit }),
    view: view(options.view ?? "entry"),
    source: source(options.source),
  });
}
