/** The descriptor of a hand-off as JSON, with the keys of all clients (docs/threads/handoff.md). */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { HandoffDescriptor, HandoffDescriptorSchema } from "@contract/handoff_service_pb.js";

const KEYS: [string, keyof HandoffDescriptor & string][] = [
  ["source", "source"],
  ["thread_id", "threadId"],
  ["checkpoint_id", "checkpointId"],
  ["blob_id", "blobId"],
  ["blob_sha256", "blobSha256"],
  ["to_agent", "toAgent"],
  ["summary", "summary"],
];
/** Keys that are present only if they are not empty. */
const FURTHER: [string, keyof HandoffDescriptor & string][] = [
  ["key", "key"],
  ["signer", "signer"],
  ["signature", "signature"],
  ["sealed_key", "sealedKey"],
];
const MAY_BE_EMPTY = ["to_agent", "summary"];
const HEX_DIGITS: Record<string, number> = { blob_sha256: 64, key: 64, signer: 64, signature: 128 };

/** Return the JSON of a descriptor, over several lines. */
export function writeDescriptor(descriptor: HandoffDescriptor): string {
  const members: Record<string, string> = {};
  for (const [key, field] of KEYS) {
    members[key] = descriptor[field] as string;
  }
  for (const [key, field] of FURTHER) {
    const text = descriptor[field] as string;
    if (text) {
      members[key] = text;
    }
  }
  return JSON.stringify(members, undefined, 2);
}

/** The text is not a descriptor. */
export class DescriptorProblem extends Error {}

/**
 * Read a descriptor.
 *
 * @throws DescriptorProblem - The text is not JSON, has other keys, or has an impossible value.
 */
export function readDescriptor(text: string): MessageInitShape<typeof HandoffDescriptorSchema> {
  const members = parsed(text);
  const missing = KEYS.map(([key]) => key).filter((key) => !Object.hasOwn(members, key));
  if (missing.length > 0) {
    throw new DescriptorProblem(`The descriptor lacks ${missing.join(", ")}.`);
  }
  const known = new Map([...KEYS, ...FURTHER]);
  const descriptor: Record<string, string> = {};
  for (const [key, value] of Object.entries(members)) {
    const field = known.get(key);
    if (!field) {
      throw new DescriptorProblem(`A descriptor has no key "${key.slice(0, 60)}".`);
    }
    descriptor[field] = checked(key, value);
  }
  if (descriptor["source"] !== `${descriptor["threadId"]}:${descriptor["checkpointId"]}`) {
    throw new DescriptorProblem("source must be the thread and the checkpoint, joined by a colon.");
  }
  if (Boolean(descriptor["signer"]) !== Boolean(descriptor["signature"])) {
    throw new DescriptorProblem("signer and signature must come together.");
  }
  return descriptor;
}

function parsed(text: string): object {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new DescriptorProblem(`It is not JSON: ${(error as SyntaxError).message}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new DescriptorProblem(
      'It is not a JSON object with the keys "source", "blob_sha256", ….',
    );
  }
  return value;
}

function checked(key: string, value: unknown): string {
  if (typeof value !== "string") {
    throw new DescriptorProblem(`${key} must be text.`);
  }
  const optional = FURTHER.some(([one]) => one === key);
  if (value === "" && !optional && !MAY_BE_EMPTY.includes(key)) {
    throw new DescriptorProblem(`${key} is empty.`);
  }
  const digits = HEX_DIGITS[key];
  if (digits && value && !(value.length === digits && /^[0-9a-f]+$/.test(value))) {
    throw new DescriptorProblem(`${key} must be ${digits} lowercase hex digits.`);
  }
  return value;
}

/** Return the keys of signers in a text: one per line, or separated by commas or spaces. */
export function signersIn(text: string): string[] {
  const signers = text.split(/[\s,]+/).filter((one) => one !== "");
  const wrong = signers.find((one) => !/^[0-9a-f]{64}$/.test(one));
  if (wrong) {
    throw new DescriptorProblem(
      `"${wrong.slice(0, 70)}" is not a public key: it must be 64 lowercase hex digits.`,
    );
  }
  return signers;
}
