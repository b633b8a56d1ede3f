/**
 * Calls with values of any size: cuts values into chunks to send them, assembles received values.
 * Contract messages in, contract messages out.
 */

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import { CheckpointAssembler, DeltaHistoryAssembler } from "../frames/assembling.js";
import { ValueCache } from "../frames/value-cache.js";
import type { CallOptions, Connection } from "./connection.js";
import type { Environment } from "./credentials.js";
import {
  InvalidRequest,
  LeaseLost,
  NotFound,
  PreconditionFailed,
  ServerError,
  ValuesMissing,
} from "../errors.js";
import {
  CheckpointRefSchema,
  Source,
  View,
  type Checkpoint,
  type Durability,
} from "../gen/tuskpoint/v1/checkpoint_pb.js";
import {
  GetCheckpointRequestSchema,
  SaveCheckpointRequestSchema,
  SaveWritesRequestSchema,
  type DeltaChannelHistory,
  type GetDeltaHistoryRequestSchema,
  type ListCheckpointsRequestSchema,
  type LoadCheckpointRequestSchema,
  type SaveCheckpointRequest,
  type SaveCheckpointResponse,
  type SaveWritesResponse,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import { emitWarnings } from "./warnings.js";

/** Options of a read. */
export interface ReadOptions extends CallOptions {
  /** How much to read. Default: `View.FULL`. */
  readonly view?: View;
  /** Where the server reads from. Default: `Source.ANY`. */
  readonly source?: Source;
}

/** The common fields of both requests that load a checkpoint. */
type LoadRequest = MessageInitShape<typeof GetCheckpointRequestSchema> &
  MessageInitShape<typeof LoadCheckpointRequestSchema>;

/** Variable of the environment with a lease of another process: its ID, a colon and the thread. */
const LEASE_VARIABLE = "TUSKPOINT_LEASE";

/** The leases under which calls change threads. */
export class HeldLeases {
  readonly #ids = new Map<string, string>();
  readonly #losses = new Map<string, AbortController>();

  /**
   * @param environment - The lease in its variable `TUSKPOINT_LEASE` counts as held.
   * @throws InvalidRequest - The variable is malformed.
   */
  constructor(environment: Environment = process.env) {
    const text = environment[LEASE_VARIABLE] ?? "";
    const [, leaseId, threadId] = /^([^:]+):(.+)$/s.exec(text) ?? [];
    if (leaseId !== undefined && threadId !== undefined) {
      this.#ids.set(threadId, leaseId);
    } else if (text !== "") {
      throw new InvalidRequest(
        `${LEASE_VARIABLE} must be the ID of a lease, a colon and the thread, not ` +
          `${JSON.stringify(text)}; \`tuskpoint lease run THREAD -- COMMAND\` sets it`,
        { status: "INVALID_ARGUMENT" },
      );
    }
  }

  /** Return the lease of a thread; `undefined` if these calls hold none. */
  of(threadId: string): string | undefined {
    return this.#ids.get(threadId);
  }

  /** Change a thread under a lease from now on. */
  enter(threadId: string, leaseId: string): void {
    this.#ids.set(threadId, leaseId);
    this.#losses.set(leaseId, new AbortController());
  }

  /** Change a thread without a lease from now on. */
  leave(threadId: string, leaseId: string): void {
    this.#losses.delete(leaseId);
    if (this.#ids.get(threadId) === leaseId) {
      this.#ids.delete(threadId);
    }
  }

  /** Return a signal that is aborted if an entered lease is lost; its reason is the `LeaseLost`. */
  lossOf(leaseId: string): AbortSignal {
    return (this.#losses.get(leaseId) ?? new AbortController()).signal;
  }

  /** Note that a lease was lost, if an error says so. */
  note(error: unknown): void {
    if (error instanceof LeaseLost) {
      this.#losses.get(error.leaseId)?.abort(error);
    }
  }
}

/** Makes the calls with large values on a connection. All other calls are at `connection.raw`. */
export class Calls {
  /** The connection. */
  readonly connection: Connection;
  /** The leases under which these calls change threads. */
  readonly leases = new HeldLeases();
  /** Values that loads need not send again. */
  readonly #values: ValueCache;

  /** @param connection - The connection. `Calls` does not close it. */
  constructor(connection: Connection) {
    this.connection = connection;
    this.#values = new ValueCache(connection.valueCacheBytes);
  }

  /** Save a checkpoint of any size. */
  async saveCheckpoint(
    request: MessageInitShape<typeof SaveCheckpointRequestSchema>,
    options: CallOptions = {},
  ): Promise<SaveCheckpointResponse> {
    const value = create(SaveCheckpointRequestSchema, request);
    value.leaseId ||= this.leases.of(value.checkpoint?.ref?.threadId ?? "") ?? "";
    const answer = await this.change(this.connection.exchange({ case: "save", value }, options));
    this.#values.addSaved(value, answer.ref?.checkpointId ?? "");
    return this.#checked(answer, value.durability);
  }

  /**
   * Save a checkpoint; a second attempt sends the values that the service does not have.
   *
   * @param request - The save.
   * @param inline - Puts the values of some channels into the request; `undefined` means all.
   */
  async saveInlining(
    request: SaveCheckpointRequest,
    inline: (channels: readonly string[] | undefined) => void | Promise<void>,
    options: CallOptions = {},
  ): Promise<SaveCheckpointResponse> {
    try {
      return await this.saveCheckpoint(request, options);
    } catch (error) {
      await inline(missing(error));
    }
    try {
      return await this.saveCheckpoint(request, options);
    } catch (error) {
      missing(error);
      // Trailers are bounded, so a refusal names only as many channels as fit.
      await inline(undefined);
    }
    return await this.saveCheckpoint(request, options);
  }

  /** Save pending writes of any size. */
  async saveWrites(
    request: MessageInitShape<typeof SaveWritesRequestSchema>,
    options: CallOptions = {},
  ): Promise<SaveWritesResponse> {
    const value = create(SaveWritesRequestSchema, request);
    value.leaseId ||= this.leases.of(value.ref?.threadId ?? "") ?? "";
    const answer = await this.change(this.connection.exchange({ case: "writes", value }, options));
    this.#values.addWritten(value);
    return this.#checked(answer, value.durability);
  }

  /**
   * Return a checkpoint of any size, every value inline; `undefined` if the checkpoint does not
   * exist.
   *
   * The server leaves out values that this client has in its cache.
   */
  async getCheckpoint(
    ref: MessageInitShape<typeof CheckpointRefSchema>,
    options: ReadOptions = {},
  ): Promise<Checkpoint | undefined> {
    const { view = View.FULL, source = Source.ANY } = options;
    const named = create(CheckpointRefSchema, ref);
    if (view !== View.FULL || source !== Source.ANY) {
      return await this.#request({ ref: named, view, source }, options);
    }
    const held = this.#values.heldFor(named);
    const heldDigests = [...held.digests];
    const checkpoint = await this.#request({ ref: named, view, source, heldDigests }, options);
    if (checkpoint !== undefined) {
      held.fill(checkpoint);
      this.#values.addLoaded(checkpoint, held);
    }
    return checkpoint;
  }

  /** Wait for a change of a thread, and note if its lease was lost. */
  async change<Answer>(answer: Promise<Answer>): Promise<Answer> {
    try {
      return await answer;
    } catch (error) {
      this.leases.note(error);
      throw error;
    }
  }

  /** Return a checkpoint of any size, with all values that are not in the cache. */
  async #request(request: LoadRequest, options: CallOptions): Promise<Checkpoint | undefined> {
    const value = create(GetCheckpointRequestSchema, request);
    try {
      return (await this.connection.exchange({ case: "get", value }, options)).checkpoint;
    } catch (error) {
      if (isAbsent(error)) {
        return undefined;
      }
      if (!isTooLarge(error)) {
        throw error;
      }
    }
    try {
      return await this.#loadCheckpoint(request, options);
    } catch (error) {
      if (isAbsent(error)) {
        return undefined;
      }
      throw error;
    }
  }

  /** Yield checkpoints, greatest ID first, every value inline. */
  async *listCheckpoints(
    request: MessageInitShape<typeof ListCheckpointsRequestSchema>,
    options: CallOptions = {},
  ): AsyncGenerator<Checkpoint, void, undefined> {
    const assembler = new CheckpointAssembler();
    const frames = this.connection.raw.checkpoints.listCheckpoints(request, options);
    for await (const { frame } of frames) {
      const complete = assembler.add(frame);
      if (complete !== undefined) {
        yield complete;
      }
    }
    assembler.end();
  }

  /** Return the data that rebuilds each channel, in the order of the requested channels. */
  async getDeltaHistory(
    request: MessageInitShape<typeof GetDeltaHistoryRequestSchema>,
    options: CallOptions = {},
  ): Promise<DeltaChannelHistory[]> {
    const assembler = new DeltaHistoryAssembler();
    const frames = this.connection.raw.checkpoints.getDeltaHistory(request, options);
    for await (const { frame } of frames) {
      assembler.add(frame);
    }
    return assembler.end();
  }

  async #loadCheckpoint(
    request: MessageInitShape<typeof LoadCheckpointRequestSchema>,
    options: CallOptions,
  ): Promise<Checkpoint> {
    const assembler = new CheckpointAssembler();
    let checkpoint: Checkpoint | undefined;
    const frames = this.connection.raw.checkpoints.loadCheckpoint(request, options);
    for await (const { frame } of frames) {
      checkpoint = assembler.add(frame) ?? checkpoint;
    }
    assembler.end();
    if (checkpoint === undefined) {
      throw broken("the server's stream ended without a checkpoint");
    }
    return checkpoint;
  }

  /** Emit the warnings of an answer, and return the answer if it has the requested durability. */
  #checked<A extends SaveCheckpointResponse | SaveWritesResponse>(answer: A, asked: Durability): A {
    if (answer.durability < asked) {
      throw broken(
        "protocol error: the answer to a save has less durability than the request; please report this",
      );
    }
    emitWarnings(this.connection.target, answer.warnings);
    return answer;
  }
}

/** Return the channels whose values the service does not have; rethrow any other error. */
function missing(error: unknown): readonly string[] {
  if (error instanceof ValuesMissing) {
    return error.channels;
  }
  throw error;
}

function isAbsent(error: unknown): boolean {
  return error instanceof NotFound && error.reason === "CHECKPOINT_NOT_FOUND";
}

function isTooLarge(error: unknown): boolean {
  return error instanceof PreconditionFailed && error.reason === "CHECKPOINT_TOO_LARGE";
}

function broken(problem: string): ServerError {
  return new ServerError(problem, { status: "INTERNAL" });
}
