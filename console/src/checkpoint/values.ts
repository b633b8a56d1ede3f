/** Values of a checkpoint in the JSON view, parsed when they are shown. Pure. */
import type { Channel, PendingWrite, Version } from "@contract/value_pb.js";
import type { Json } from "../parts/json/json.ts";

/** A parsed value, or the reason why it could not be parsed. */
export type Parsed = { json: Json } | { problem: string };

const parsedBefore = new WeakMap<Uint8Array, Parsed>();

/** Parse JSON text only once, however often it is shown. */
export function parsed(data: Uint8Array): Parsed {
  let value = parsedBefore.get(data);
  if (!value) {
    value = parse(data);
    parsedBefore.set(data, value);
  }
  return value;
}

function parse(data: Uint8Array): Parsed {
  try {
    return { json: JSON.parse(new TextDecoder().decode(data)) as Json };
  } catch (error) {
    if (error instanceof SyntaxError) {
      return { problem: `This is not JSON: ${error.message}` };
    }
    throw error;
  }
}

/** Return the bytes of a channel or write; undefined: it has no value. */
export function dataOf({ content }: Channel | PendingWrite): Uint8Array | undefined {
  return content.case === "value" ? content.value.data : undefined;
}

/**
 * Return a version in few characters.
 *
 * LangGraph's versions are a number with zeros in front, and a random part that distinguishes two
 * writers.
 */
export function versionText(version: Version | undefined): string {
  const kind = version?.kind;
  if (!kind || kind.case === undefined) {
    return "";
  }
  const text = String(kind.value);
  const [, number] = kind.case === "text" ? (/^0*(\d+)\.\d+$/.exec(text) ?? []) : [];
  return number ?? text;
}
