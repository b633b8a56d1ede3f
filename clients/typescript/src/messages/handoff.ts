/** Hand-offs: the descriptor, the request of an adoption, and its result. Pure. */

import { create } from "@bufbuild/protobuf";
import { durationFromMs, type Duration } from "@bufbuild/protobuf/wkt";

import { InvalidDescriptor, invalidField, messageOf } from "../errors.js";
import {
  AdoptHandoffRequestSchema,
  HandoffSchema,
  HandoffState,
  WatchHandoffsRequestSchema,
  type AdoptHandoffRequest,
  type Handoff,
  type HandoffDescriptor,
  type WatchHandoffsRequest,
} from "../gen/tuskpoint/v1/handoff_service_pb.js";
import type { CallOptions } from "../transport/connection.js";
import { moment } from "./records.js";
import { choice, durability, nameOf, type DurabilityName } from "./words.js";

/**
 * A small portable description of a handed-off checkpoint. As JSON it has exactly these keys, in
 * every language: `JSON.stringify` returns text that the receiver accepts. `key` is present only if
 * the caller requested it, `signer` and `signature` only if a server signed, `sealed_key` only if
 * the hand-off names a recipient.
 */
export interface Descriptor {
  /** The handed-off checkpoint, "thread:checkpoint". */
  readonly source: string;
  /** Thread of the handed-off checkpoint. */
  readonly thread_id: string;
  /** ID of the handed-off checkpoint. */
  readonly checkpoint_id: string;
  /** Blob with everything needed to continue from the checkpoint. */
  readonly blob_id: string;
  /** SHA-256 of the blob's bytes, as lowercase hex. The only trusted field. */
  readonly blob_sha256: string;
  /** Agent that may adopt the hand-off; may be empty. */
  readonly to_agent: string;
  /** One sentence about the state of the agent. */
  readonly summary: string;
  /**
   * Key that opens a sealed blob, as lowercase hex. Everyone who has the key can read the
   * checkpoint.
   */
  readonly key?: string;
  /** Public key of the server that created the hand-off, as lowercase hex. */
  readonly signer?: string;
  /** Signature of that server, as lowercase hex; the adopting server checks it. */
  readonly signature?: string;
  /** The key sealed to the recipient that the hand-off names, in base64. */
  readonly sealed_key?: string;
}

/** A stage of an adoption; "verified" means that the bytes match the hash. */
export type StageName = "fetching" | "fetched" | "verified" | "adopted";

/** Progress of an adoption. */
export interface AdoptProgress {
  /** The stage. */
  readonly stage: StageName;
  /** Bytes fetched so far. */
  readonly fetchedBytes: bigint;
}

/** The result of an adoption. */
export interface Adoption {
  /** The adopted checkpoint, "thread:checkpoint". */
  readonly adoptedFrom: string;
  /** The new thread. */
  readonly newThreadId: string;
  /** First checkpoint of the new thread. */
  readonly checkpointId: string;
  /** Blob that contains the adopted checkpoint in the new thread; empty until it is certified. */
  readonly blobId: string;
  /** Always true: the hash was checked. There is no adoption without the check. */
  readonly verified: boolean;
  /** Public key of the server that signed the descriptor; empty without a signature. */
  readonly signer: string;
}

/** Options of an adoption. */
export interface AdoptOptions extends CallOptions {
  /** Called with each stage. An error that it throws ends the wait, not the adoption. */
  readonly onProgress?: (progress: AdoptProgress) => void;
  /**
   * Default: "certified"; "journaled" does not wait until the new checkpoint has a blob of its own.
   */
  readonly durability?: DurabilityName | undefined;
  /**
   * Adopt only descriptors that one of these servers signed: public keys, as in `signers` of their
   * server info.
   */
  readonly requireSigners?: readonly string[] | undefined;
}

/** State of an offer; a newer server may send other states. */
export type OfferState = "offered" | "adopted" | "withdrawn" | "expired";

const STATES: Readonly<Record<OfferState, HandoffState>> = {
  offered: HandoffState.OFFERED,
  adopted: HandoffState.ADOPTED,
  withdrawn: HandoffState.WITHDRAWN,
  expired: HandoffState.EXPIRED,
};

/** A hand-off that is offered to an agent. */
export interface OfferRecord {
  /** ID of the offer; IDs of later offers sort after it. */
  readonly handoffId: string;
  /** The receiving agent; may be empty. */
  readonly toAgent: string;
  /** State of the offer: "offered" is open. */
  readonly state: OfferState | (string & {});
  /** The descriptor; `undefined` if the offer was removed with its thread. */
  readonly descriptor: Descriptor | undefined;
  /** Time of the hand-off. */
  readonly created: Date | undefined;
  /** Time at which the offer expires, or has expired; `undefined`: never. */
  readonly expires: Date | undefined;
  /** Time at which the offer was closed; `undefined`: the offer is open. */
  readonly closed: Date | undefined;
  /** Thread that adopted the offer; empty in other states. */
  readonly adoptedThreadId: string;
}

/** Which offers to list. */
export interface ListHandoffsOptions extends CallOptions {
  /** Only offers to this agent; "" for offers that name no agent. Default: all agents. */
  readonly toAgent?: string | undefined;
  /** Only offers of checkpoints of this thread. */
  readonly threadId?: string | undefined;
  /** Only offers in these states. Default: all states. */
  readonly states?: readonly OfferState[] | undefined;
}

/** Options of a watch of an inbox. */
export interface WatchHandoffsOptions extends CallOptions {
  /** Which states to yield. Default: only open offers. */
  readonly states?: readonly OfferState[] | undefined;
}

/** Options of the adoption of an offer. */
export interface AdoptOfferOptions extends AdoptOptions {
  /**
   * A name that this worker gives to this adoption, and gives again after a crash: the repeat gets
   * the first adoption. Default: only retries of this call get the first adoption.
   */
  readonly requestId?: string | undefined;
}

/** Return the record of an offer. */
export function offerRecord(message: Handoff | undefined): OfferRecord {
  const handoff = message ?? create(HandoffSchema);
  return {
    handoffId: handoff.handoffId,
    toAgent: handoff.toAgent,
    state: nameOf(HandoffState, handoff.state),
    descriptor: handoff.descriptor && descriptorOf(handoff.descriptor),
    created: moment(handoff.createTime),
    expires: moment(handoff.expireTime),
    closed: moment(handoff.closeTime),
    adoptedThreadId: handoff.adoptedThreadId,
  };
}

/** Return the numbers of states. */
export function stateNumbers(states: readonly OfferState[]): HandoffState[] {
  return states.map((state) => choice("states", state, STATES));
}

/** Return the request of a watch of offers in all states. */
export function watchingOffers(
  toAgent: string,
  options: WatchHandoffsOptions,
): WatchHandoffsRequest {
  stateNumbers(options.states ?? []);
  return create(WatchHandoffsRequestSchema, { toAgent });
}

/** Return the request that adopts an offer. */
export function adoptingOffer(
  handoffId: string,
  newThreadId: string,
  options: AdoptOfferOptions,
): AdoptHandoffRequest {
  return create(AdoptHandoffRequestSchema, {
    handoffId,
    newThreadId,
    requestId: options.requestId || crypto.randomUUID(),
    requiredSigners: [...(options.requireSigners ?? [])],
    durability: durability(options.durability ?? "certified"),
  });
}

/** Return the field of a request with the time until an offer expires. */
export function expiry(expiresInMs: number | undefined): { expiresIn?: Duration } {
  if (expiresInMs === undefined) {
    return {};
  }
  if (!(expiresInMs > 0 && expiresInMs <= Number.MAX_SAFE_INTEGER)) {
    throw invalidField("expiresInMs", `it must be above 0, not ${String(expiresInMs)}`);
  }
  return { expiresIn: durationFromMs(expiresInMs) };
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
/** Optional keys. */
const FURTHER: readonly string[] = [...Object.keys(HEX_DIGITS), "sealed_key"];
/** A string in JSON text. */
const JSON_TEXT = /"(?:[^"\\]|\\.)*"/g;

/**
 * Return a descriptor that was given as an object or as JSON text.
 *
 * @throws InvalidDescriptor - The value is not a descriptor, or its fields contradict one another.
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
  // JSON.parse silently keeps the last value of a repeated key.
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

/** Return a message of the contract as a descriptor. */
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
