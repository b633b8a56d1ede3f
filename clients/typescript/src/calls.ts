/**
 * The calls whose values may have any size: cut into chunks on the way out, put together on the way
 * in. Contract messages in, contract messages out.
 */

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import { CheckpointAssembler, DeltaHistoryAssembler } from "./assembling.js";
import type { CallOptions, Connection } from "./connection.js";
import { NotFound, PreconditionFailed, ServerError } from "./errors.js";
import {
  CheckpointRefSchema,
  Source,
  View,
  type Checkpoint,
} from "./gen/tuskpoint/v1/checkpoint_pb.js";
import {
  CheckpointService,
  SaveCheckpointRequestSchema,
  SaveWritesRequestSchema,
  type DeltaChannelHistory,
  type GetDeltaHistoryRequestSchema,
  type ListCheckpointsRequestSchema,
  type LoadCheckpointRequestSchema,
  type SaveCheckpointResponse,
  type SaveCheckpointsRequest,
  type SaveCheckpointsResponse,
  type SaveWritesResponse,
} from "./gen/tuskpoint/v1/checkpoint_service_pb.js";
import { fitsUnary, saveFrames, type Save } from "./sending.js";
import { fromCallError } from "./status.js";
import { tellWarnings } from "./warnings.js";

/** Number of the one save that a stream of ours carries. */
const SAVE_ID = 1n;

type SaveAnswer = SaveCheckpointResponse | SaveWritesResponse;

/** How a checkpoint is read. */
export interface ReadOptions extends CallOptions {
  /** How much. Default: `View.FULL`. */
  readonly view?: View;
  /** From where. Default: `Source.ANY`. */
  readonly source?: Source;
}

/** Makes these calls on a connection. Whatever has no such values is at `connection.raw`. */
export class Calls {
  /** The connection. */
  readonly connection: Connection;

  /** @param connection - The connection. It is not closed here. */
  constructor(connection: Connection) {
    this.connection = connection;
  }

  /** Save a checkpoint of any size: in one message if it fits, else on a stream. */
  async saveCheckpoint(
    request: MessageInitShape<typeof SaveCheckpointRequestSchema>,
    options: CallOptions = {},
  ): Promise<SaveCheckpointResponse> {
    const save = create(SaveCheckpointRequestSchema, request);
    const answer = fitsUnary(save)
      ? await this.connection.raw.checkpoints.saveCheckpoint(save, options)
      : ((await this.#saveOnStream(save, options)) as SaveCheckpointResponse);
    tellWarnings(this.connection.target, answer.warnings);
    return answer;
  }

  /** Save pending writes of any size: in one message if they fit, else on a stream. */
  async saveWrites(
    request: MessageInitShape<typeof SaveWritesRequestSchema>,
    options: CallOptions = {},
  ): Promise<SaveWritesResponse> {
    const save = create(SaveWritesRequestSchema, request);
    const answer = fitsUnary(save)
      ? await this.connection.raw.checkpoints.saveWrites(save, options)
      : ((await this.#saveOnStream(save, options)) as SaveWritesResponse);
    tellWarnings(this.connection.target, answer.warnings);
    return answer;
  }

  /** Return a checkpoint of any size, every value inline; `undefined` if it does not exist. */
  async getCheckpoint(
    ref: MessageInitShape<typeof CheckpointRefSchema>,
    options: ReadOptions = {},
  ): Promise<Checkpoint | undefined> {
    const { view = View.FULL, source = Source.ANY } = options;
    const request = { ref: create(CheckpointRefSchema, ref), view, source };
    try {
      const answer = await this.connection.raw.checkpoints.getCheckpoint(request, options);
      return answer.checkpoint;
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

  /** Return what rebuilds each channel, in the order in which they were asked for. */
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

  async #saveOnStream(save: Save, options: CallOptions): Promise<SaveAnswer> {
    const method = CheckpointService.method.saveCheckpoints;
    return await this.connection.retrying(method, save, options, async ({ timeoutMs }) => {
      const attempt = { signal: options.signal, timeoutMs };
      return await lastAnswer(this.connection.duplex(method, framesOf(save), attempt), save);
    });
  }
}

/** Return the last answer to the one save of a stream: that of the durability asked for. */
async function lastAnswer(
  frames: AsyncIterable<SaveCheckpointsResponse>,
  save: Save,
): Promise<SaveAnswer> {
  let answer: SaveAnswer | undefined;
  for await (const { saveId, result } of frames) {
    if (saveId !== SAVE_ID || result.case === undefined) {
      throw broken("the server answered a save that was not sent");
    }
    if (result.case === "error") {
      throw fromCallError(result.value);
    }
    answer = result.value;
  }
  if (answer === undefined || answer.durability < save.durability) {
    throw broken("the server ended the stream without the acknowledgement that was asked for");
  }
  return answer;
}

async function* framesOf(save: Save): AsyncGenerator<SaveCheckpointsRequest, void, undefined> {
  yield* saveFrames(save, SAVE_ID);
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
