/** `Client`: the whole service for agents without LangGraph. */

import {
  adopting,
  descriptorOf,
  expiry,
  readDescriptor,
  type Adoption,
  type AdoptOptions,
  type Descriptor,
} from "../messages/handoff.js";
import { locationOf } from "../messages/records.js";
import {
  searching,
  searchResults,
  type SearchOptions,
  type SearchResults,
} from "../messages/search.js";
import {
  archiveStatus,
  clockJump,
  serverInfo,
  type ArchiveStatus,
  type ClockJump,
  type Flushed,
  type ServerInfo,
} from "../messages/threads.js";
import { TrailReader, type TrailEntry } from "../messages/trail.js";
import type { CallOptions } from "../transport/connection.js";
import { emitWarnings } from "../transport/warnings.js";
import { callOf, checkOptions, checkTexts, refOf } from "./arguments.js";
import { Effects } from "./effects/effects.js";
import {
  answer,
  openInterrupts,
  type AnswerOptions,
  type InterruptOptions,
  type OpenInterrupt,
} from "./interrupts.js";
import type { HandoffOptions } from "./options.js";

/**
 * Saves and loads the state of agents.
 *
 * One client may be shared by a whole process. Saves and loads of all callers share one stream, in
 * batches. Failed calls are retried where that is safe. Every call has a deadline and accepts an
 * `AbortSignal`. Errors are subclasses of `TuskPointError`.
 */
export class Client extends Effects {
  /**
   * Return the interrupts that a checkpoint waits for.
   *
   * An answered interrupt is included until its graph has continued.
   *
   * @throws NotFound - The checkpoint does not exist.
   */
  async interrupts(threadId: string, options: InterruptOptions = {}): Promise<OpenInterrupt[]> {
    checkOptions(options);
    return openInterrupts(await this.load(threadId, { ...options, view: "json" }));
  }

  /**
   * Answer an interrupt; return the ID of the checkpoint that waits for it.
   *
   * The graph uses the answer when it is invoked with `null`. Until then a later answer replaces
   * the earlier one, unless the checkpoint waits for several interrupts.
   *
   * @param value - The answer: a value that JSON can represent, not null.
   * @throws PreconditionFailed - The checkpoint waits for no interrupt, not for the named
   *   interrupt, or for several interrupts and the options name none.
   * @throws NotFound - The checkpoint does not exist.
   */
  async answer(threadId: string, value: unknown, options: AnswerOptions = {}): Promise<string> {
    checkOptions(options);
    const record = await this.load(threadId, { ...options, view: "json" });
    await answer(this.calls, record, value, options);
    return record.checkpointId;
  }

  /**
   * Store everything needed to continue from a checkpoint as one blob; return its descriptor.
   *
   * Every agent that has the descriptor and the same blob store can adopt the checkpoint. The
   * hand-off is also offered in the inbox of `toAgent`.
   *
   * @throws NotFound - The checkpoint does not exist.
   * @throws Unavailable - The blob store is not available.
   */
  async handoff(threadId: string, options: HandoffOptions = {}): Promise<Descriptor> {
    const { toAgent = "", includeKey = false, recipient = "" } = options;
    checkTexts({ toAgent, recipient });
    const request = {
      ref: refOf(threadId, options),
      toAgent,
      includeKey,
      recipient,
      ...expiry(options.expiresInMs),
    };
    const made = await this.raw.handoffs.createHandoff(request, callOf(options));
    emitWarnings(this.target, made.warnings);
    return descriptorOf(made.descriptor);
  }

  /**
   * Make a hand-off the first checkpoint of a new thread, after its hash is checked.
   *
   * The server fetches the blob from the blob store itself.
   *
   * @param descriptor - The result of `handoff`, or its JSON text.
   * @param newThreadId - The thread to create. Default: the server generates a name.
   * @throws InvalidDescriptor - The value is not a descriptor.
   * @throws DescriptorMismatch - The blob contains a checkpoint that the descriptor does not name.
   * @throws HashMismatch - The bytes of the blob do not match the hash. Nothing was written.
   * @throws NotFound - The blob store does not have the blob.
   * @throws AlreadyExists - The new thread has checkpoints.
   */
  async adopt(
    descriptor: Descriptor | string,
    newThreadId = "",
    options: AdoptOptions = {},
  ): Promise<Adoption> {
    checkTexts({ newThreadId });
    return this.adoptAs(adopting(readDescriptor(descriptor), newThreadId, options), options);
  }

  /**
   * Search checkpoints by a description, nearest first; load a result by its checkpoint ID.
   *
   * @param query - A description in plain words (words in double quotes must match exactly), or a
   *   vector of the index's dimension.
   * @throws InvalidRequest - The query is empty, or an argument breaks its limits.
   * @throws PreconditionFailed - The server does not index, or does not have the mode.
   * @throws Unavailable - The search backend of `mode` does not answer.
   */
  async search(
    query: string | ArrayLike<number>,
    options: SearchOptions = {},
  ): Promise<SearchResults> {
    const request = searching(query, options);
    const answer = await this.raw.search.searchCheckpoints(request, callOf(options));
    emitWarnings(this.target, answer.warnings);
    return searchResults(answer);
  }

  /** Return the version, limits and backends of the server. */
  async info(options: CallOptions = {}): Promise<ServerInfo> {
    return serverInfo(await this.raw.admin.getServerInfo({}, callOf(options)));
  }

  /** Return the state of the archive. */
  async status(options: CallOptions = {}): Promise<ArchiveStatus> {
    return archiveStatus(await this.raw.admin.getArchiveStatus({}, callOf(options)));
  }

  /**
   * Make the journal follow the server's clock. Needs the scope "admin".
   *
   * @returns The clock step that stopped deletions, which continue after this call; `undefined` if
   *   no step stopped them.
   */
  async acceptClock(options: CallOptions = {}): Promise<ClockJump | undefined> {
    return clockJump((await this.raw.admin.acceptClock({}, callOf(options))).accepted);
  }

  /**
   * Yield the entries of the audit trail, oldest first. Needs the scope "admin".
   *
   * @throws DataLoss - A batch is malformed, or was changed or left out.
   */
  async *trail(options: CallOptions = {}): AsyncGenerator<TrailEntry, void, undefined> {
    const reader = new TrailReader();
    const call = callOf(options);
    for (let afterBatchId = ""; ; ) {
      const { batches } = await this.raw.admin.listTrail({ afterBatchId }, call);
      if (batches.length === 0) {
        return;
      }
      for (const batch of batches) {
        for (const entry of reader.entries(batch)) {
          this.connection.checkOpen();
          yield entry;
        }
        afterBatchId = batch.batchId;
      }
    }
  }

  /** Certify everything saved so far, and return after that. */
  async flush(options: CallOptions = {}): Promise<Flushed> {
    const flushed = await this.raw.admin.flush({}, callOf(options));
    const { certifiedCheckpoints } = flushed;
    return { certifiedCheckpoints, catalog: locationOf(flushed.catalog) };
  }
}
