/** One change between two checkpoints, prepared for display. Pure. */
import { type Change, ChangeKind } from "@contract/thread_service_pb.js";
import { type Json, unescaped } from "../parts/json/json.ts";

/** One side of a change. */
export type Side =
  | { kind: "absent" }
  /** A string; `cut`: the server sent only its start. */
  | { kind: "text"; text: string; cut: boolean }
  /** An array or object. */
  | { kind: "tree"; json: Json }
  /** Any other value, as JSON text. */
  | { kind: "json"; text: string; cut: boolean };

/** Read one side of a change; the server may have cut its JSON anywhere. */
export function sideOf(text: string | undefined): Side {
  if (text === undefined) {
    return { kind: "absent" };
  }
  const whole = parse(text);
  if (whole !== undefined) {
    if (typeof whole === "string") {
      return { kind: "text", text: whole, cut: false };
    }
    // 1 and 1.0 are the same number in JavaScript, but not for the server: the JSON text
    // distinguishes them.
    const leaf = whole === null || typeof whole !== "object";
    return leaf ? { kind: "json", text, cut: false } : { kind: "tree", json: whole };
  }
  const begun = text.startsWith('"') ? begunString(text) : undefined;
  return begun === undefined
    ? { kind: "json", text, cut: true }
    : { kind: "text", text: begun, cut: true };
}

const LONGEST_ESCAPE = 6; // characters, such as \u0041

/** Return a string whose JSON was cut, without the rest of a cut escape. */
function begunString(text: string): string | undefined {
  for (let cut = 0; cut < LONGEST_ESCAPE; cut += 1) {
    const value = parse(`${text.slice(0, text.length - cut)}"`);
    if (typeof value === "string") {
      return value;
    }
  }
  return undefined;
}

function parse(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch (error) {
    if (error instanceof SyntaxError) {
      return undefined;
    }
    throw error;
  }
}

/** Return the parts of a JSON Pointer, positions in brackets; empty: the whole value. */
export function pathOf(pointer: string): string[] {
  return pointer
    .split("/")
    .slice(1)
    .map((part) => unescaped(part.replaceAll("~1", "/").replaceAll("~0", "~")))
    .map((part) => (/^\d+$/.test(part) ? `[${part}]` : part));
}

export interface ChannelChanges {
  channel: string;
  changes: Change[];
}

/** Return the changes by channel, in their order. */
export function byChannel(changes: readonly Change[]): ChannelChanges[] {
  const groups: ChannelChanges[] = [];
  for (const change of changes) {
    const last = groups.at(-1);
    if (last?.channel === change.channel) {
      last.changes.push(change);
    } else {
      groups.push({ channel: change.channel, changes: [change] });
    }
  }
  return groups;
}

/** Name and sign of each kind of change. */
export const KINDS: Record<ChangeKind, { name: string; sign: string }> = {
  [ChangeKind.UNSPECIFIED]: { name: "unknown", sign: "?" },
  [ChangeKind.ADDED]: { name: "added", sign: "+" },
  [ChangeKind.REMOVED]: { name: "removed", sign: "−" },
  [ChangeKind.CHANGED]: { name: "changed", sign: "~" },
};

/** Return the number of changes of each kind: "2 added, 1 changed". */
export function tally(changes: readonly Change[]): string {
  return [ChangeKind.ADDED, ChangeKind.REMOVED, ChangeKind.CHANGED]
    .map((kind) => [changes.filter((change) => change.kind === kind).length, kind] as const)
    .filter(([number]) => number > 0)
    .map(([number, kind]) => `${number} ${KINDS[kind].name}`)
    .join(", ");
}
