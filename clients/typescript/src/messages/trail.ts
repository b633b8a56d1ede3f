/** The audit trail: its entries, and the check that no batch was changed or left out. */

import { createHash } from "node:crypto";

import { DataLoss } from "../errors.js";
import type { TrailBatch } from "../gen/tuskpoint/v1/admin_service_pb.js";
import { decodeObject, type Json, type JsonObject } from "./json.js";

/** Calls of one kind that ended within about one second. */
export interface TrailEntry {
  /** The batch that contains the entry. */
  readonly batchId: string;
  /** Name of the credential; empty if the server requires none. */
  readonly who: string;
  /** The method, such as "SaveCheckpoint". */
  readonly method: string;
  /** The thread that the calls named; empty if they named none. */
  readonly threadId: string;
  /** Outcome of the calls: "OK", or the name of a gRPC status. */
  readonly status: string;
  /** Number of the calls. */
  readonly calls: number;
  /** Time at which the first of the calls ended. */
  readonly first: Date;
  /** Time at which the last of the calls ended. */
  readonly last: Date;
  /** Whether the batch is in the blob store. */
  readonly certified: boolean;
}

/** Reads the batches of a trail in order, and checks their chain. */
export class TrailReader {
  #lastHash = "";

  /**
   * Return the entries of the next batch.
   *
   * @throws DataLoss - The batch is malformed, or does not name the preceding batch.
   */
  entries(batch: TrailBatch): TrailEntry[] {
    const { previous, entries } = parsed(batch);
    if (previous !== this.#lastHash) {
      throw broken(batch, "it does not name the batch before: one was changed or left out");
    }
    if (!Array.isArray(entries)) {
      throw broken(batch, "it is malformed: its entries are not a list");
    }
    this.#lastHash = createHash("sha256").update(batch.content).digest("hex");
    return entries.map((entry) => entryOf(batch, entry));
  }
}

function parsed(batch: TrailBatch): JsonObject {
  try {
    const content = decodeObject(batch.content);
    if (typeof content === "object" && content !== null) {
      return content;
    }
  } catch (cause) {
    throw broken(batch, "it is malformed: it is not JSON", cause);
  }
  throw broken(batch, "it is malformed: it is not an object");
}

function entryOf(batch: TrailBatch, entry: Json): TrailEntry {
  const fields = (typeof entry === "object" && entry !== null ? entry : {}) as JsonObject;
  const text = (name: string): string => {
    const value = fields[name];
    if (typeof value !== "string") {
      throw broken(batch, `it is malformed: ${name} of an entry is not a text`);
    }
    return value;
  };
  const time = (name: string): Date => {
    const value = new Date(text(name));
    if (Number.isNaN(value.getTime())) {
      throw broken(batch, `it is malformed: ${name} of an entry is not a time`);
    }
    return value;
  };
  const { calls } = fields;
  if (!Number.isInteger(calls)) {
    throw broken(batch, "it is malformed: calls of an entry is not a whole number");
  }
  return {
    batchId: batch.batchId,
    who: text("who"),
    method: text("method"),
    threadId: text("thread_id"),
    status: text("status"),
    calls: calls as number,
    first: time("first"),
    last: time("last"),
    certified: batch.certified,
  };
}

function broken({ batchId }: TrailBatch, problem: string, cause?: unknown): DataLoss {
  return new DataLoss(`the trail is broken at batch ${batchId}: ${problem}`, {
    status: "DATA_LOSS",
    metadata: { batch_id: batchId },
    cause,
  });
}
