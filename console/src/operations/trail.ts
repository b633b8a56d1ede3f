/** The audit trail: its entries, and the check that no batch was changed or left out. */
import type { TrailBatch } from "@contract/admin_service_pb.js";

export interface TrailEntry {
  who: string;
  method: string;
  threadId: string;
  status: string;
  calls: number;
  /** Time at which the last of the calls ended, as ISO text. */
  last: string;
  certified: boolean;
}

/** Computes the SHA-256 of bytes in lowercase hex. */
export type Sha256 = (content: Uint8Array) => Promise<string>;

/** Reads the batches of a trail in order, and checks that each batch names the preceding batch. */
export class TrailReader {
  private expected: string | undefined = "";
  private batches = 0;
  /** ID of the last batch. */
  last = "";
  /** A description of the first batch that breaks the chain; empty: no batch does. */
  broken = "";

  /** Without `sha256`, the reader checks only that each batch can be read. */
  constructor(private readonly sha256: Sha256 | undefined) {}

  /** Number of batches that were read. */
  get size(): number {
    return this.batches;
  }

  /** Return the entries of the next batch; no entries for an unreadable batch. */
  async take(batch: TrailBatch): Promise<TrailEntry[]> {
    this.batches += 1;
    this.last = batch.batchId;
    const document = documentOf(batch.content);
    if (!document) {
      this.breakAt(batch, "it is malformed");
    } else if (this.sha256 && this.expected !== undefined && document.previous !== this.expected) {
      this.breakAt(batch, "it does not name the batch before: one was changed or left out");
    }
    this.expected = this.sha256 ? await this.sha256(batch.content) : undefined;
    return (document?.entries ?? []).map((entry) => ({ ...entry, certified: batch.certified }));
  }

  private breakAt(batch: TrailBatch, why: string): void {
    this.broken ||= `The chain breaks at batch ${batch.batchId}: ${why}.`;
  }
}

interface Document {
  previous: string;
  entries: Omit<TrailEntry, "certified">[];
}

function documentOf(content: Uint8Array): Document | undefined {
  let read: unknown;
  try {
    read = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(content));
  } catch {
    return undefined; // the error of the reader names the position
  }
  if (!isObject(read) || typeof read["previous"] !== "string" || !Array.isArray(read["entries"])) {
    return undefined;
  }
  const entries = read["entries"].map(entryOf);
  return entries.every((entry) => entry !== undefined)
    ? { previous: read["previous"], entries }
    : undefined;
}

function entryOf(read: unknown): Omit<TrailEntry, "certified"> | undefined {
  if (!isObject(read)) {
    return undefined;
  }
  const { who, method, thread_id: threadId, status, calls, last } = read;
  return typeof who === "string" &&
    typeof method === "string" &&
    typeof threadId === "string" &&
    typeof status === "string" &&
    typeof calls === "number" &&
    typeof last === "string"
    ? { who, method, threadId, status, calls, last }
    : undefined;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
