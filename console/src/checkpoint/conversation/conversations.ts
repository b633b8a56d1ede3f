/** Finds the conversations in a checkpoint. Pure. */
import type { Channel } from "@contract/value_pb.js";
import type { Json } from "../../parts/json/json.ts";
import { dataOf, parsed } from "../values.ts";
import { deltaOf } from "./delta.ts";
import { type Message, messagesOf } from "./messages.ts";

export interface Conversation {
  /** Name of the channel, or the common start of its channels' names. */
  name: string;
  messages: Message[];
  /** Whether the messages are merged here from writes, with LangGraph's reducer of messages. */
  delta: boolean;
}

/** Frameworks without channels save the parts of a history as `items/00000`, `items/00001`, ... */
const NUMBERED = /^(.*)\/\d{5,}$/s;

export function conversationsOf(channels: readonly Channel[]): Conversation[] {
  const values = new Map<string, Json[]>();
  for (const channel of channels) {
    const data = dataOf(channel);
    const value = data && mayHoldMessages(data) ? parsed(data) : undefined;
    if (value && "json" in value) {
      const name = NUMBERED.exec(channel.name)?.[1] ?? channel.name;
      values.set(name, [...(values.get(name) ?? []), value.json]);
    }
  }
  return [...values].flatMap(([name, parts]) => {
    const whole = parts.length === 1 ? (parts[0] ?? null) : parts.flat();
    const messages = messagesOf(whole);
    return messages ? [{ name, messages, delta: deltaOf(whole) !== undefined }] : [];
  });
}

/** Return whether the JSON view hides a value, which may contain messages too. */
export function hidesValues(channels: readonly Channel[]): boolean {
  return channels.some((channel) => {
    const data = dataOf(channel);
    const value = data && data.length < LONGEST_OPAQUE ? parsed(data) : undefined;
    const json = value && "json" in value ? value.json : null;
    return json !== null && typeof json === "object" && Object.hasOwn(json, "$opaque");
  });
}

const LONGEST_OPAQUE = 4096; // bytes of the escape for a hidden value
const ARRAY = "[".charCodeAt(0);
const OBJECT = "{".charCodeAt(0);

/** Return whether JSON text is an array or object; other texts are not worth parsing. */
function mayHoldMessages(data: Uint8Array): boolean {
  return data.length > 2 && (data[0] === ARRAY || data[0] === OBJECT);
}
