/** `TuskPointSaver`, the checkpointer. */

import { AsyncLocalStorage } from "node:async_hooks";

import { clone, create } from "@bufbuild/protobuf";
import type { RunnableConfig } from "@langchain/core/runnables";
import { BaseCheckpointSaver } from "@langchain/langgraph-checkpoint";
import type {
  ChannelVersions,
  Checkpoint,
  CheckpointListOptions,
  CheckpointMetadata,
  CheckpointTuple,
  DeltaChannelHistory,
  PendingWrite,
  SerializerProtocol,
} from "@langchain/langgraph-checkpoint";

import { doOnce } from "../client/effects/once.js";
import type { EffectWork } from "../client/effects/records.js";
import { withLease, type LeaseOptions } from "../client/leases.js";
import type { LeaseRecord } from "../messages/threads.js";
import { Calls } from "../transport/calls.js";
import { Connection, type ConnectionOptions } from "../transport/connection.js";
import { NotFound } from "../errors.js";
import type { Checkpoint as CheckpointMessage } from "../gen/tuskpoint/v1/checkpoint_pb.js";
import { Durability } from "../gen/tuskpoint/v1/checkpoint_pb.js";
import {
  SaveCheckpointRequestSchema,
  SaveWritesRequestSchema,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import type {
  SaveCheckpointRequest,
  SaveWritesRequest,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import { components } from "../messages/search.js";
import { durability, type DurabilityName } from "../messages/words.js";
import { decodeConfig, decodeHistory, decodeTuple, parentWithSends } from "./decode.js";
import {
  checkpointRef,
  encodeCheckpoint,
  historyRequest,
  inlineChannels,
  listRequest,
  threadIdOf,
  writeRequests,
} from "./encode.js";
import { effectPlan, resultOf, type SaverEffectOptions } from "./effects.js";
import { summaryOf } from "./summary.js";
import type { Saving, Summarize } from "./summary.js";
import { nextVersion } from "./versions.js";

/** Key of `config.configurable` for the vector that a caller gives. */
export const VECTOR_KEY = "tuskpoint_vector";

/** Signals that are aborted with the loss of the leases in whose `withLease` this code runs. */
const entered = new AsyncLocalStorage<readonly AbortSignal[]>();

/** Returns the search vector of a checkpoint, or `undefined` to send no vector. */
export type Vectorize = (
  checkpoint: Checkpoint,
  metadata: CheckpointMetadata,
) => ArrayLike<number> | undefined;

/** Options of a saver. */
export interface SaverOptions extends ConnectionOptions {
  /** Serializer of values. Default: LangGraph.js's own, which writes JSON. */
  readonly serde?: SerializerProtocol | undefined;
  /**
   * Durability that a save waits for: "journaled" (milliseconds) or "certified" (seconds). Writes
   * that are saved before their checkpoint are certified together with it. Default: "journaled".
   */
  readonly durability?: DurabilityName | undefined;
  /**
   * Whether a save is refused (`Conflict`) unless its parent is the latest checkpoint of its
   * namespace. The refusal detects two agents that drive one thread; deliberate forks within a
   * thread are refused too. Default: false.
   */
  readonly fence?: boolean | undefined;
  /** Name of the agent, recorded with the threads that the agent drives. */
  readonly agentId?: string | undefined;
  /** Returns the summary of a checkpoint from the checkpoint and its metadata. */
  readonly summarize?: Summarize | undefined;
  /** Returns the search vector of a checkpoint from the checkpoint and its metadata. */
  readonly vectorize?: Vectorize | undefined;
  /** Whether search finds the threads that this saver saves to. Default: unchanged. */
  readonly searchable?: boolean | undefined;
}

/**
 * Stores LangGraph.js's checkpoints in a TuskPoint server.
 *
 * The constructor does no I/O. Values are sent only for changed channels; a second call sends other
 * values that the server does not have. Each checkpoint has a summary: the value of
 * `config.configurable.tuskpoint_summary`, else the result of `summarize`, else a sentence made
 * from the names of nodes and channels. A checkpoint has a search vector if
 * `config.configurable.tuskpoint_vector` or `vectorize` gives one.
 *
 * Channel versions have the format of the Python saver, so that both languages can drive one
 * thread.
 */
export class TuskPointSaver extends BaseCheckpointSaver {
  readonly #calls: Calls;
  readonly #durability: Durability;
  readonly #options: SaverOptions;

  /**
   * @param options - Where the server is, and how to save; missing options of the connection come
   *   from the environment. A text is the target.
   * @throws InvalidRequest - An option is not valid, options contradict one another, or a file that
   *   an option names cannot be read.
   */
  constructor(options: SaverOptions | string = {}) {
    const given = typeof options === "string" ? { target: options } : options;
    super(given.serde);
    this.#durability = durability(given.durability);
    this.#options = given;
    this.#calls = new Calls(new Connection(given));
  }

  /**
   * Run some work, such as a run of a graph, as the only driver of a thread; see `Client.withLease`.
   *
   * A run whose lease was lost fails with `LeaseLost` after its current step.
   *
   * @throws ThreadBusy - Another driver has the thread.
   */
  async withLease<T>(
    threadId: string,
    options: LeaseOptions,
    work: (lease: LeaseRecord, lost: AbortSignal) => T | Promise<T>,
  ): Promise<T> {
    return await withLease(this.#calls, threadId, options, async (lease, lost) =>
      entered.run([...(entered.getStore() ?? []), lost], async () => await work(lease, lost)),
    );
  }

  /**
   * Do work in the outside world once; return its recorded result.
   *
   * Without a `key`, the effect belongs to the running task: a run that repeats the task after a
   * crash, a retry or an interrupt gets the result. Within a task, a name is unique: a second effect
   * with the name needs an equal `input`, and is the same effect. Results pass this saver's
   * serializer. Otherwise the method behaves as `Client.effect`.
   *
   * @param config - The config that the node received.
   * @param name - Name of the work, unique within the task.
   * @param work - Does the work. Send its `idempotencyKey` to the outside world.
   * @throws PreconditionFailed - No key is given, and the config does not belong to a running task,
   *   or the checkpoint of the task is not saved within 10 seconds, as with durability "exit".
   * @throws EffectUnknown - It is unknown whether an earlier attempt did the work.
   * @throws EffectRunning - Another attempt did not report within `waitMs`.
   * @throws EffectNotDone - The work returned or threw `NotDone`.
   * @throws EffectRefused - The work, or an earlier attempt, returned or threw `Refused`.
   * @throws EffectInputChanged - The effect was begun with another input.
   */
  async effect<T>(
    config: RunnableConfig,
    name: string,
    options: SaverEffectOptions,
    work: EffectWork<T>,
  ): Promise<T> {
    const given = { durability: this.#options.durability, ...options };
    const plan = await effectPlan(config, name, given, this.serde);
    const effect = await doOnce(this.#calls, plan, work);
    return (await resultOf(effect, this.serde)) as T; // What the work returned, after the serializer.
  }

  // --- reads -------------------------------------------------------------------------

  /**
   * Return the checkpoint that a config names, or the latest of its namespace; `undefined` if the
   * checkpoint does not exist or the config names no thread.
   */
  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    if (threadIdOf(config) === undefined) {
      return undefined;
    }
    const message = await this.#calls.getCheckpoint(checkpointRef(config));
    return message && (await this.#decode(message));
  }

  /**
   * Yield checkpoints, newest first, as the server streams them.
   *
   * @param config - Thread, namespace and checkpoint to list; a missing key means all.
   * @param options - `filter`: metadata keys and the values that they must have, compared whole.
   *   `before`: only checkpoints with an ID below this config's ID; its other keys are ignored.
   *   `limit`: most checkpoints to yield; 0 and less means none.
   */
  override async *list(
    config: RunnableConfig,
    options: CheckpointListOptions = {},
  ): AsyncGenerator<CheckpointTuple> {
    if (options.limit !== undefined && options.limit <= 0) {
      return;
    }
    const request = listRequest(config, options);
    for await (const message of this.#calls.listCheckpoints(request)) {
      yield await this.#decode(message);
    }
  }

  /** Return the data that rebuilds delta channels: a stored value and the writes since. */
  override async getDeltaChannelHistory(options: {
    config: RunnableConfig;
    channels: string[];
  }): Promise<Record<string, DeltaChannelHistory>> {
    const { config, channels } = options;
    if (channels.length === 0 || threadIdOf(config) === undefined) {
      return decodeHistory(channels, [], this.serde);
    }
    const request = historyRequest(config, channels);
    const histories = await this.#calls.getDeltaHistory(request);
    return decodeHistory(channels, histories, this.serde);
  }

  // --- saves -------------------------------------------------------------------------

  /**
   * Save a checkpoint with the checkpoint in `config` as its parent; return a config that names the
   * new checkpoint.
   *
   * @throws Conflict - `fence` is on and another agent changed the thread.
   * @throws ThreadDeleted - The thread was deleted after its parent was saved.
   */
  override async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    const request = await this.#saveRequest({ config, checkpoint, metadata, newVersions });
    const answer = await this.#calls.saveInlining(request, (names) =>
      inlineChannels(request.checkpoint, names, checkpoint, this.serde),
    );
    return decodeConfig(answer.ref);
  }

  /**
   * Save the writes of a task after the checkpoint in `config`, which need not exist yet.
   *
   * @throws ThreadDeleted - The thread was deleted after that checkpoint was saved.
   */
  override async putWrites(
    config: RunnableConfig,
    writes: PendingWrite[],
    taskId: string,
    taskPath = "",
  ): Promise<void> {
    const requests = await writeRequests(
      config,
      writes,
      taskId,
      taskPath,
      this.#durability,
      this.serde,
    );
    for (const request of requests) {
      await this.#saveWrites(request);
    }
  }

  /**
   * Return the version after `current`; threads with number versions keep numbers.
   *
   * @throws LeaseLost - The run is in a `withLease` whose lease was lost. LangGraph.js saves in the
   *   background, and the main loop of a run calls this method after each step.
   */
  override getNextVersion(current: number | undefined): number {
    for (const lost of entered.getStore() ?? []) {
      lost.throwIfAborted();
    }
    // The runtime compares text as well as numbers, but `compile` accepts no saver with the type of
    // text.
    return nextVersion(current) as number;
  }

  // --- threads -----------------------------------------------------------------------

  /** Delete a thread with all its namespaces; do nothing if the thread does not exist. */
  override async deleteThread(threadId: string): Promise<void> {
    const request = { threadId: String(threadId), durability: this.#durability };
    await this.#calls.connection.raw.threads.deleteThread(request);
  }

  /** Close the connection. Calls in progress fail, and later calls fail too. */
  close(): void {
    this.#calls.connection.close();
  }

  // --- requests and answers ----------------------------------------------------------

  async #saveRequest(saving: Saving): Promise<SaveCheckpointRequest> {
    const { agentId = "", fence = false, searchable, summarize, vectorize } = this.#options;
    const summary = summaryOf(saving, summarize);
    const vector = vectorOf(saving, vectorize);
    const message = await encodeCheckpoint(saving, this.serde);
    message.summary = summary;
    return create(SaveCheckpointRequestSchema, {
      checkpoint: message,
      durability: this.#durability,
      agentId,
      vector,
      ...(searchable === undefined ? {} : { searchable }),
      ...(fence ? { expectedHead: message.parentCheckpointId } : {}),
    });
  }

  async #saveWrites(request: SaveWritesRequest): Promise<void> {
    try {
      await this.#calls.saveWrites(request);
    } catch (error) {
      // If the answer is not early, the checkpoint was saved meanwhile and may have been certified
      // without these writes.
      const early = await this.#calls.saveWrites(asEarly(request, error));
      if (!early.early) {
        await this.#calls.saveWrites(request);
      }
    }
  }

  async #decode(message: CheckpointMessage): Promise<CheckpointTuple> {
    const parent = parentWithSends(message);
    const sender = parent && (await this.#calls.getCheckpoint(parent));
    return decodeTuple(message, this.serde, sender);
  }
}

/**
 * Return a request for writes that are certified together with their checkpoint; rethrow an error
 * that has another cause than the missing checkpoint.
 */
function asEarly(request: SaveWritesRequest, error: unknown): SaveWritesRequest {
  if (!(error instanceof NotFound) || error.reason !== "CHECKPOINT_MISSING") {
    throw error;
  }
  const early = clone(SaveWritesRequestSchema, request);
  early.durability = Durability.JOURNALED;
  return early;
}

/**
 * Return the vector: the config's vector, else the result of `vectorize`; empty for none.
 *
 * Errors of `vectorize` pass through to the caller.
 *
 * @throws InvalidRequest - The value is not a vector.
 */
function vectorOf({ config, checkpoint, metadata }: Saving, vectorize?: Vectorize): number[] {
  const given: ArrayLike<number> | undefined = config.configurable?.[VECTOR_KEY];
  if (given !== undefined) {
    return components(VECTOR_KEY, given);
  }
  const made = vectorize?.(checkpoint, metadata);
  return made === undefined ? [] : components("vectorize", made);
}
