/** `Client`: the service for agents without LangGraph. */

import { create } from "@bufbuild/protobuf";

import { Calls } from "./calls.js";
import { Connection, type CallOptions, type ConnectionOptions } from "./connection.js";
import { ReplayCourse, WatchCourse } from "./courses.js";
import { invalidField, NotFound } from "./errors.js";
import {
  ListCheckpointsRequestSchema,
  type ListCheckpointsRequest,
} from "./gen/tuskpoint/v1/checkpoint_service_pb.js";
import { HistoryService } from "./gen/tuskpoint/v1/history_service_pb.js";
import {
  adopt,
  descriptorOf,
  type Adoption,
  type AdoptOptions,
  type Descriptor,
} from "./handoff.js";
import {
  replaying,
  threadEvent,
  watching,
  type ReplayOptions,
  type ThreadEvent,
  type WatchOptions,
} from "./history.js";
import {
  answer,
  openInterrupts,
  type AnswerOptions,
  type InterruptOptions,
  type OpenInterrupt,
} from "./interrupts.js";
import { checkText, encodeObject, encodeState } from "./json.js";
import type {
  CheckpointOptions,
  ChangeOptions,
  Fork,
  ForkOptions,
  LabelOptions,
  ListOptions,
  LoadOptions,
  Rollback,
  RollbackOptions,
  Saved,
  SaveOptions,
  ThreadFilter,
} from "./options.js";
import type { RawClients } from "./raw.js";
import { CheckpointRecord, locationOf } from "./records.js";
import { Memory, save } from "./saving.js";
import {
  components,
  searching,
  searchResults,
  type SearchOptions,
  type SearchResults,
} from "./search.js";
import {
  archiveStatus,
  serverInfo,
  THREAD_STATES,
  threadRecord,
  type ArchiveStatus,
  type Flushed,
  type ServerInfo,
  type ThreadRecord,
} from "./threads.js";
import { tellWarnings } from "./warnings.js";
import { choice, durability, durabilityName, source, view } from "./words.js";

/** Threads in one page of a listing. */
const PAGE_SIZE = 1_000;

/**
 * Saves and loads the state of agents.
 *
 * One client may be shared by a whole process. Failed calls are tried again where that is safe, and
 * every call has a deadline and takes an `AbortSignal`; errors are those of `TuskPointError`.
 */
export class Client {
  readonly #connection: Connection;
  readonly #calls: Calls;
  readonly #memory = new Memory();

  /**
   * @param options - Target, token, TLS and deadline; what is left out comes from the environment.
   *   A text is the target.
   * @throws InvalidRequest - An option cannot be one, options contradict one another, or a file
   *   that one names cannot be read.
   */
  constructor(options: ConnectionOptions | string = {}) {
    const given = typeof options === "string" ? { target: options } : options;
    this.#connection = new Connection(given);
    this.#calls = new Calls(this.#connection);
  }

  /** Where the server is, as `host:port`. */
  get target(): string {
    return this.#connection.target;
  }

  /** The calls of the contract as they are: messages in, messages out. */
  get raw(): RawClients {
    return this.#connection.raw;
  }

  /** Let go of the connection. What is under way fails, and so do calls made afterwards. */
  close(): void {
    this.#connection.close();
  }

  // --- checkpoints --------------------------------------------------------------------------

  /**
   * Save a checkpoint.
   *
   * Each key of the state is a channel with a value of type `json`. What is the same as in the
   * parent is not sent again and keeps its version; what changed gets a version above all of the
   * parent's. A state may have any size: large values are sent in chunks.
   *
   * @param threadId - The thread; it begins with its first checkpoint.
   * @param state - Channel to a value that JSON can say.
   * @throws InvalidRequest - JSON cannot say the state (`metadata.field` is the path of what it
   *   cannot say), or an argument breaks its limits.
   * @throws Conflict - The latest is not `expectedHead`.
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
    const saved = await save(draft, this.#calls, this.#memory, callOf(options));
    return {
      checkpointId: saved.ref?.checkpointId ?? "",
      durability: durabilityName(saved.durability),
      seq: saved.seq,
    };
  }

  /**
   * Load one checkpoint exactly, whatever its size.
   *
   * @param threadId - The thread.
   * @throws NotFound - There is no such checkpoint.
   * @throws PreconditionFailed - `source` is "blob" and the checkpoint is not certified.
   * @throws DataLoss - The blob does not have the recorded hash.
   */
  async load(threadId: string, options: LoadOptions = {}): Promise<CheckpointRecord> {
    const ref = refOf(threadId, options);
    const found = await this.#calls.getCheckpoint(ref, {
      ...callOf(options),
      view: view(options.view),
      source: source(options.source),
    });
    if (found === undefined) {
      throw notFound(ref);
    }
    return new CheckpointRecord(found);
  }

  /** Yield checkpoints, latest first; none if there is no such thread. */
  async *list(
    threadId: string | undefined,
    options: ListOptions = {},
  ): AsyncGenerator<CheckpointRecord, void, undefined> {
    const request = listing(threadId, options);
    for await (const found of this.#calls.listCheckpoints(request, callOf(options))) {
      yield new CheckpointRecord(found);
    }
  }

  /**
   * Name a checkpoint, or clear its name with an empty label; return its ID.
   *
   * @throws NotFound - There is no such checkpoint.
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

  // --- history ------------------------------------------------------------------------------

  /**
   * Yield the checkpoints of a thread, oldest first.
   *
   * They come as a stream: neither side holds more than a few. A lost connection or a restarted
   * server goes unnoticed: the replay goes on after the last checkpoint that was yielded.
   *
   * @throws NotFound - There is no such thread.
   */
  async *replay(
    threadId: string,
    options: ReplayOptions = {},
  ): AsyncGenerator<CheckpointRecord, void, undefined> {
    checkTexts({ threadId });
    const course = new ReplayCourse(replaying(threadId, options));
    const method = HistoryService.method.replayThread;
    for await (const found of this.#connection.resume(method, course, callOf(options))) {
      yield new CheckpointRecord(found);
    }
  }

  /**
   * Yield the changes of a thread in order: those that were, then each as it happens.
   *
   * It does not end. A lost connection, a server that shuts down and one that was killed go
   * unnoticed if a server is back within minutes: the watch goes on after the last event that was
   * yielded, without gap or duplicate. To go on in another process, or after an error, begin with
   * the `cursor` of the last event. To stop it, leave the loop, abort the signal, or close the
   * client.
   *
   * @param threadId - The thread. It need not exist any more if there is a cursor.
   * @throws NotFound - There is no such thread, and no cursor.
   * @throws CursorCompacted - What came after the cursor is not kept any more.
   * @throws Unavailable - No server was found for minutes.
   */
  async *watch(
    threadId: string,
    options: WatchOptions = {},
  ): AsyncGenerator<ThreadEvent, void, undefined> {
    checkTexts({ threadId });
    const course = new WatchCourse(watching(threadId, options));
    const method = HistoryService.method.watchThread;
    for await (const message of this.#connection.resume(method, course, callOf(options))) {
      const event = threadEvent(message);
      if (options.progressMs !== undefined || !event.isProgress) {
        yield event;
      }
    }
  }

  // --- interrupts ---------------------------------------------------------------------------

  /**
   * Return the questions that a checkpoint waits on; none if it does not wait.
   *
   * One that is answered is among them until its graph has gone on.
   *
   * @throws NotFound - There is no such checkpoint.
   */
  async interrupts(threadId: string, options: InterruptOptions = {}): Promise<OpenInterrupt[]> {
    return openInterrupts(await this.load(threadId, { ...options, view: "json" }));
  }

  /**
   * Answer a thread that waits; return the ID of the checkpoint that was answered.
   *
   * Whoever runs the graph takes the answer up by invoking it with `null`. Until then another answer
   * replaces it, unless the checkpoint waits for several.
   *
   * @param value - The answer: a value that JSON can say, not null.
   * @throws PreconditionFailed - The checkpoint waits for nothing, for no such interrupt, or for
   *   several and none is named.
   * @throws NotFound - There is no such checkpoint.
   */
  async answer(threadId: string, value: unknown, options: AnswerOptions = {}): Promise<string> {
    const record = await this.load(threadId, { ...options, view: "json" });
    await answer(this.#calls, record, value, options);
    return record.checkpointId;
  }

  // --- hand-offs ----------------------------------------------------------------------------

  /**
   * Store everything needed to go on from a checkpoint as one blob; return its descriptor.
   *
   * Whoever has the descriptor and the same blob store can adopt it.
   *
   * @throws NotFound - There is no such checkpoint.
   * @throws Unavailable - The blob store cannot be used now.
   */
  async handoff(
    threadId: string,
    options: CheckpointOptions & {
      /** Name of the agent it is meant for. */
      readonly toAgent?: string | undefined;
    } = {},
  ): Promise<Descriptor> {
    const { toAgent = "" } = options;
    checkTexts({ toAgent });
    const request = { ref: refOf(threadId, options), toAgent };
    const made = await this.raw.handoffs.createHandoff(request, callOf(options));
    return descriptorOf(made.descriptor);
  }

  /**
   * Make a hand-off the first checkpoint of a new thread, once its hash is checked.
   *
   * The blob is fetched from the blob store itself.
   *
   * @param descriptor - What `handoff` returned, or its JSON text.
   * @param newThreadId - The thread to make. Default: the server makes a name.
   * @throws InvalidDescriptor - The descriptor is none.
   * @throws DescriptorMismatch - The blob holds another checkpoint than the descriptor names.
   * @throws HashMismatch - The blob does not have the hash. Nothing was written.
   * @throws NotFound - The blob store has no such blob.
   * @throws AlreadyExists - The new thread has checkpoints.
   */
  async adopt(
    descriptor: Descriptor | string,
    newThreadId = "",
    options: AdoptOptions = {},
  ): Promise<Adoption> {
    checkTexts({ newThreadId });
    return await adopt(this.#connection, descriptor, newThreadId, options);
  }

  // --- search -------------------------------------------------------------------------------

  /**
   * Find checkpoints by what happened, nearest first; load what was found by its ID.
   *
   * @param query - What happened, in plain words (in double quotes, exactly these words), or a
   *   vector of the index's dimension.
   * @throws InvalidRequest - The query is empty, or an argument breaks its limits.
   * @throws PreconditionFailed - The server does not index, or lacks the mode.
   * @throws Unavailable - What `mode` asks for does not answer.
   */
  async search(
    query: string | ArrayLike<number>,
    options: SearchOptions = {},
  ): Promise<SearchResults> {
    const request = searching(query, options);
    const found = await this.raw.search.searchCheckpoints(request, callOf(options));
    tellWarnings(this.target, found.warnings);
    return searchResults(found);
  }

  // --- threads ------------------------------------------------------------------------------

  /**
   * Describe a thread.
   *
   * @throws NotFound - There is no such thread.
   */
  async getThread(threadId: string, options: CallOptions = {}): Promise<ThreadRecord> {
    checkTexts({ threadId });
    const { thread } = await this.raw.threads.getThread({ threadId }, callOf(options));
    if (thread === undefined) {
      throw notFound({ threadId, checkpointNs: "", checkpointId: "" });
    }
    return threadRecord(thread);
  }

  /** Yield threads by ID. */
  async *listThreads(options: ThreadFilter = {}): AsyncGenerator<ThreadRecord, void, undefined> {
    const { agentId = "", label = "", state } = options;
    const filter = {
      agentId,
      label,
      ...(state === undefined ? {} : { state: choice("state", state, THREAD_STATES) }),
      pageSize: PAGE_SIZE,
    };
    let pageToken = "";
    do {
      const request = { ...filter, pageToken };
      const page = await this.raw.threads.listThreads(request, callOf(options));
      yield* page.threads.map(threadRecord);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Delete a thread with all its namespaces; return how many checkpoints it had. */
  async delete(threadId: string, options: ChangeOptions = {}): Promise<bigint> {
    checkTexts({ threadId });
    const request = { threadId, durability: durability(options.durability) };
    const deleted = await this.raw.threads.deleteThread(request, callOf(options));
    this.#memory.forget(threadId);
    return deleted.deletedCheckpoints;
  }

  /**
   * Make a new thread that begins with a checkpoint of another.
   *
   * The fork keeps the checkpoint's ID, pending writes and label.
   *
   * @throws NotFound - There is no such checkpoint.
   * @throws AlreadyExists - The new thread has checkpoints.
   */
  async fork(threadId: string, options: ForkOptions = {}): Promise<Fork> {
    const { newThreadId = "" } = options;
    checkTexts({ newThreadId });
    const request = {
      ref: refOf(threadId, options),
      newThreadId,
      durability: durability(options.durability),
    };
    const fork = await this.raw.threads.forkThread(request, callOf(options));
    return {
      newThreadId: fork.ref?.threadId ?? "",
      checkpointId: fork.ref?.checkpointId ?? "",
      forkedFrom: fork.forkedFrom,
    };
  }

  /**
   * Append a checkpoint that has the state of an earlier one. Nothing is removed.
   *
   * It has no pending writes: tasks run, and interrupts raise, again.
   *
   * @param checkpointId - The checkpoint to go back to.
   * @throws NotFound - There is no such checkpoint.
   * @throws Conflict - The latest is not `expectedHead`.
   */
  async rollback(
    threadId: string,
    checkpointId: string,
    options: RollbackOptions = {},
  ): Promise<Rollback> {
    const { checkpointNs, expectedHead } = options;
    const request = {
      ref: refOf(threadId, { checkpointNs, checkpointId }),
      ...(expectedHead === undefined ? {} : { expectedHead }),
      durability: durability(options.durability),
    };
    const appended = await this.raw.threads.rollbackThread(request, callOf(options));
    this.#memory.forget(threadId);
    return {
      threadId: appended.ref?.threadId ?? "",
      checkpointId: appended.ref?.checkpointId ?? "",
      rolledBackFrom: appended.rolledBackFrom,
    };
  }

  // --- the server ---------------------------------------------------------------------------

  /** Return what the server is. */
  async info(options: CallOptions = {}): Promise<ServerInfo> {
    return serverInfo(await this.raw.admin.getServerInfo({}, callOf(options)));
  }

  /** Return how the archive stands. */
  async status(options: CallOptions = {}): Promise<ArchiveStatus> {
    return archiveStatus(await this.raw.admin.getArchiveStatus({}, callOf(options)));
  }

  /** Certify everything saved so far, and return then. */
  async flush(options: CallOptions = {}): Promise<Flushed> {
    const flushed = await this.raw.admin.flush({}, callOf(options));
    const { certifiedCheckpoints } = flushed;
    return { certifiedCheckpoints, catalog: locationOf(flushed.catalog) };
  }
}

interface Ref {
  readonly threadId: string;
  readonly checkpointNs: string;
  readonly checkpointId: string;
}

function refOf(threadId: string, options: CheckpointOptions): Ref {
  const ref = {
    threadId,
    checkpointNs: options.checkpointNs ?? "",
    checkpointId: options.checkpointId ?? "",
  };
  checkTexts(ref);
  return ref;
}

function listing(threadId: string | undefined, options: ListOptions): ListCheckpointsRequest {
  const { checkpointNs, before = "", label = "", limit } = options;
  if (limit !== undefined && !(Number.isInteger(limit) && limit >= 0 && limit < 2 ** 32)) {
    throw invalidField("limit", `it is a whole number, 0 or more, not ${limit}`);
  }
  return create(ListCheckpointsRequestSchema, {
    ...(threadId === undefined ? {} : { threadId }),
    ...(checkpointNs === undefined ? {} : { checkpointNs }),
    before,
    filterJson: encodeObject("metadata", options.metadata),
    label,
    ...(limit === undefined ? {} : { limit }),
    view: view(options.view ?? "entry"),
    source: source(options.source),
  });
}

function notFound({ threadId, checkpointNs, checkpointId }: Ref): NotFound {
  const which = checkpointId === "" ? "checkpoint" : `checkpoint '${checkpointId}'`;
  return new NotFound(
    `no ${which} in namespace '${checkpointNs}' of thread '${threadId}': list(thread) shows what ` +
      "there is",
    {
      status: "NOT_FOUND",
      reason: "CHECKPOINT_NOT_FOUND",
      metadata: {
        thread_id: threadId,
        checkpoint_ns: checkpointNs,
        checkpoint_id: checkpointId,
      },
    },
  );
}

function checkTexts(texts: Readonly<Record<string, string>>): void {
  for (const [field, text] of Object.entries(texts)) {
    checkText(field, text);
  }
}

/** Return what of a method's options is for the call itself. */
function callOf({ signal, timeoutMs }: CallOptions): CallOptions {
  return { signal, timeoutMs };
}
