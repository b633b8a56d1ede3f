/** Merges a delta channel of messages, as LangGraph's own reducer for such channels does. Pure. */
import { isObject, type Json } from "../../parts/json/json.ts";
import type { Message } from "./messages.ts";

const OVERWRITE = "__overwrite__";
const REMOVE_ALL = "__remove_all__";

/** A delta channel that has to be merged. */
export interface Delta {
  /** The value before the writes; null: the channel starts empty. */
  base: Json;
  /** What is written onto it, oldest first: messages, unless another reducer takes other items. */
  written: Json[];
}

/** Return the parts of a delta channel in the JSON view; undefined: the value is not one. */
export function deltaOf(value: Json): Delta | undefined {
  if (!isObject(value) || !Array.isArray(value["$delta"])) {
    return undefined;
  }
  const { $delta: writes, $seed: base = null } = value;
  const last = writes.findLastIndex((write) => replacementOf(write) !== undefined);
  return {
    base: last < 0 ? base : (replacementOf(writes[last]) ?? null),
    written: writes.slice(last + 1).flat(),
  };
}

/** Return what a write replaces the whole channel with; undefined: it is an ordinary write. */
function replacementOf(write: Json | undefined): Json | undefined {
  if (!isObject(write)) {
    return undefined;
  }
  const { $type, type, value, [OVERWRITE]: replacement = value } = write;
  const replaces =
    OVERWRITE in write || type === OVERWRITE || $type === "langgraph.types.Overwrite";
  return replaces ? replacement : undefined;
}

/**
 * Return the messages of a channel after writes. A message replaces the one with its ID in place; a
 * removal removes it. The last removal of all messages counts alone: what is before it is dropped.
 */
export function merged(base: readonly Message[], written: readonly Message[]): Message[] {
  const cleared = written.findLastIndex(({ role, id }) => role === "remove" && id === REMOVE_ALL);
  const kept: (Message | undefined)[] = cleared < 0 ? [...base] : [];
  const places = new Map(kept.map((message, place) => [message?.id, place]));
  for (const message of written.slice(cleared + 1)) {
    const { role, id } = message;
    const place = id ? places.get(id) : undefined;
    const removes = id && role === "remove";
    if (removes) {
      places.delete(id);
    }
    if (place !== undefined) {
      kept[place] = removes ? undefined : message;
    } else if (!removes) {
      places.set(id, kept.push(message) - 1);
    }
  }
  return kept.filter((message) => message !== undefined);
}
