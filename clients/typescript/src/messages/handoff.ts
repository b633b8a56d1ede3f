/** Hand-offs: the descriptor, and what is asked for and returned by an adoption. Pure. */

import { create } from "@bufbuild/protobuf";

import { InvalidDescriptor, messageOf } from "../errors.js";
import {
  AdoptHandoffRequestSchema,
  type AdoptHandoffRequest,
  type HandoffDescriptor,
} from "../gen/tuskpoint/v1/handoff_service_pb.js";
import type { CallOptions } from "../transport/connection.js";
import { durability, type DurabilityName } from "./words.js";

/**
 * A small portable description of a checkpoint that was handed off. As JSON it has exactly these
 * keys, in every language: `JSON.stringify` makes what the other side takes. `key` is there only if
 * it was asked for, `signer` and `signature` only if a server signed, `sealed_key` only if the
 * hand-off names a recipient.
 */
export interface Descriptor {
  /** What was handed off, "thread:checkpoint". */
  readonly source: string;
  /** Its thread. */
  readonly thread_id: string;
  /** Its ID. */
  readonly checkpoint_id: string;
  /** Blob that holds everything needed to continue from it. */
  readonly blob_id: string;
  /** SHA-256 of the blob's bytes, as lowercase hex. The one thing trusted. */
  readonly blob_sha256: string;
  /** The agent it is meant for; may be empty. */
  readonly to_agent: string;
  /** One sentence about the state of the agent. */
  readonly summary: string;
  /** Opens the blob if it is sealed, as lowercase hex. Whoever has it can read the checkpoint. */
  readonly key?: string;
  /** Public key of the server that handed off, as lowercase hex. */
  readonly signer?: string;
  /** Its signature, which the adopting server checks, as lowercase hex. */
  readonly signature?: string;
  /** The key for the recipient that the hand-off names, in base64. */
  readonly sealed_key?: string;
}

/** A stage of an adoption; "verified" means that the hash is right. */
export type StageName = "fetching" | "fetched" | "verified" | "adopted";

/** How far an adoption is. */
export interface AdoptProgress {
  /** The stage. */
  readonly stage: StageName;
  /** Bytes fetched so far. */
  readonly fetchedBytes: bigint;
}

/** The outcome of an adoption. */
export interface Adoption {
  /** What was adopted, "thread:checkpoint". */
  readonly adoptedFrom: string;
  /** The new thread. */
  readonly newThreadId: string;
  /** Its first checkpoint. */
  readonly checkpointId: string;
  /**
   * Blob that holds the adopted checkpoint in the new thread; empty as long as it is not certified.
   */
  readonly blobId: string;
  /** True: the hash was checked. There is no adoption without it. */
  readonly verified: boolean;
  /** Public key of the server that signed the descriptor; empty if nobody did. */
  readonly signer: string;
}

/** How a hand-off is adopted. */
export interface AdoptOptions extends CallOptions {
  /** Is called with each stage. What it throws ends the wait, not the adoption. */
  readonly onProgress?: (progress: AdoptProgress) => void;
  /**
   * Default: "certified"; "journaled" does not wait until the new checkpoint has a blob of its own.
   */
  readonly durability?: DurabilityName | undefined;
  /** Adopt only what one of these servers signed: public keys, as `signers` of their description. */
  readonly requireSigners?: readonly string[] | undefined;
}

const KEYS = [
  "source",
  "thread_id",
  "checkpoint_id",
  "blob_id",
  "blob_sha256",
  "to_agent",
  "summary",
] as const satisfies readonly (keyof Descriptor)[];
const MAY_BE_EMPTY: ReadonlySet<string> = new Set(["to_agent", "summary"]);
const SHA256 = /^[0-9a-f]{64}$/;
const HEX = /^[0-9a-f]+$/;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const MAX_SEALED_KEY = 4096;
const HEX_DIGITS = { key: 64, signer: 64, signature: 128 } as const;
/** Keys that may be missing. */
const FURTHER: readonly string[] = [...Object.keys(HEX_DIGITS), "sealed_key"];
/** A text of JSON. */
const JSON_TEXT = /"(?:[^"\\]|\\.)*"/g;

/**
 * Return a descriptor that was given as an object or as JSON text.
 *
 * @throws InvalidDescriptor - It is not a descriptor, or its fields contradict one another.
 */
export function readDescriptor(given: unknown): Descriptor {
  const members = typeof given === "string" ? parsed(given) : given;
  if (typeof members !== "object" || members === null || Array.isArray(members)) {
    throw invalid("", `it must be an object with the keys ${KEYS.join(", ")}`);
  }
  const texts = new Map(Object.entries(members));
  checkKeys(texts);
  const keys = [...KEYS, ...FURTHER.filter((key) => texts.has(key))];
  const descriptor = Object.fromEntries(
    keys.map((key) => [key, checkedText(key, texts.get(key))]),
  ) as unknown as Descriptor;
  // JSON.parse silently keeps the last value of a key that comes twice.
  if (typeof given === "string" && given.match(JSON_TEXT)?.length !== 2 * keys.length) {
    throw invalid("", "a key comes twice");
  }
  if (!SHA256.test(descriptor.blob_sha256)) {
    throw invalid("blob_sha256", "it must be 64 lowercase hex digits");
  }
  for (const [key, digits] of Object.entries(HEX_DIGITS)) {
    const text = descriptor[key as keyof typeof HEX_DIGITS];
    if (text !== undefined && (text.length !== digits || !HEX.test(text))) {
      throw invalid(key, `it must be ${String(digits)} lowercase hex digits, or missing`);
    }
  }
  if ((descriptor.signer === undefined) !== (descriptor.signature === undefined)) {
    throw invalid("signature", "it must come with signer, or neither");
  }
  const sealedKey = descriptor.sealed_key ?? "";
  if (sealedKey.length > MAX_SEALED_KEY || !BASE64.test(sealedKey)) {
    throw invalid(
      "sealed_key",
      `it must be base64 of at most ${String(MAX_SEALED_KEY)} characters, or missing`,
    );
  }
  if (descriptor.source !== `${descriptor.thread_id}:${descriptor.checkpoint_id}`) {
    throw invalid("source", "it must be the thread and the checkpoint, joined by a colon");
  }
  return descriptor;
}

/** Return the contract's message as a descriptor. */
export function descriptorOf(message: HandoffDescriptor | undefined): Descriptor {
  return readDescriptor({
    source: message?.source ?? "",
    thread_id: message?.threadId ?? "",
    checkpoint_id: message?.checkpointId ?? "",
    blob_id: message?.blobId ?? "",
    blob_sha256: message?.blobSha256 ?? "",
    to_agent: message?.toAgent ?? "",
    summary: message?.summary ?? "",
    ...(message?.key ? { key: message.key } : {}),
    ...(message?.signer ? { signer: message.signer, signature: message.signature } : {}),
    ...(message?.sealedKey ? { sealed_key: message.sealedKey } : {}),
  });
}

/** Return the request of an adoption. */
export function adopting(
  descriptor: Descriptor,
  newThreadId: string,
  options: AdoptOptions,
): AdoptHandoffRequest {
  return create(AdoptHandoffRequestSchema, {
    descriptor: {
      source: descriptor.source,
      threadId: descriptor.thread_id,
      checkpointId: descriptor.checkpoint_id,
      blobId: descriptor.blob_id,
      blobSha256: descriptor.blob_sha256,
      toAgent: descriptor.to_agent,
      summary: descriptor.summary,
      key: descriptor.key ?? "",
      signer: descriptor.signer ?? "",
      signature: descriptor.signature ?? "",
      sealedKey: descriptor.sealed_key ?? "",
    },
    requiredSigners: [...(options.requireSigners ?? [])],
    newThreadId,
    requestId: crypto.randomUUID(),
    durability: durability(options.durability ?? "certified"),
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw invalid("", `it is not JSON: ${messageOf(error)}`);
  }
}

function checkKeys(members: ReadonlyMap<string, unknown>): void {
  const missing = KEYS.filter((key) => !members.has(key));
  if (missing.length > 0) {
    throw invalid(missing[0] ?? "", `the descriptor lacks ${missing.join(", ")}`);
  }
  const extra = [...members.keys()].filter(
    (key) => !FURTHER.includes(key) && !(KEYS as readonly string[]).includes(key),
  );
  if (extra.length > 0) {
    throw invalid(extra[0] ?? "", `a descriptor has no ${extra.join(", ")}`);
  }
}

function checkedText(key: string, text: unknown): string {
  if (typeof text !== "string") {
    throw invalid(key, `it must be a string, not of type ${typeof text}`);
  }
  if (text === "" && !MAY_BE_EMPTY.has(key)) {
    throw invalid(key, "it must not be empty");
  }
  if (!text.isWellFormed()) {
    throw invalid(key, "it cannot be written in UTF-8");
  }
  return text;
}

function invalid(key: string, problem: string): InvalidDescriptor {
  const field = key === "" ? "descriptor" : `descriptor.${key}`;
  return new InvalidDescriptor(`${field}: ${problem}`, {
    status: "INVALID_ARGUMENT",
    reason: "INVALID_FIELD",
    metadata: { field },
    violations: [{ field, problem }],
  });
}
