/** Values that can be edited as JSON, and the reasons why other values cannot. */
import type { Channel, Version } from "@contract/value_pb.js";
import { type Exact, readExact, writeExact } from "../exact_json.ts";

/** Bytes of text above which a value is not edited in a browser. */
export const LARGEST = 1024 ** 2;

/** The text of an editable value, or the reason why the value cannot be edited. */
export type Editable = { text: string; messages: boolean } | { refusal: string };

const BY_PROGRAM = "Change it with a program: update_state of its graph, or a client.";

/** Classes of LangChain's messages, in the form that both languages of LangGraph load. */
const MESSAGE = /^langchain_core\.messages\.\w+\.((?:AI|Chat|Function|Human|System|Tool)Message)$/;

/**
 * Return the text that a person edits.
 *
 * The view of a value is saved as the value only if the view loses nothing. A key of an agent that
 * starts with "$" gets its own name back. Messages of LangChain become `lc` objects, which
 * LangGraph reads as messages. Any other escape of the view is refused.
 *
 * @param view - The value in the JSON view.
 * @param type - The type of the stored value.
 */
export function editable(view: string, type: string): Editable {
  if (view.length > LARGEST) {
    return { refusal: `It is larger than 1 MiB. ${BY_PROGRAM}` };
  }
  const marks = { messages: false };
  try {
    const value = plain(readExact(view), "", type === "json", marks);
    return { text: writeExact(value, 2), messages: marks.messages };
  } catch (error) {
    if (error instanceof Unwritable) {
      return { refusal: `${error.message} ${BY_PROGRAM}` };
    }
    throw error;
  }
}

class Unwritable extends Error {}

function plain(value: Exact, path: string, json: boolean, marks: { messages: boolean }): Exact {
  if (value.kind === "array") {
    const items = value.items.map((one, index) => plain(one, `${path}/${index}`, json, marks));
    return { kind: "array", items };
  }
  if (value.kind !== "object") {
    return value;
  }
  const message = messageName(value);
  if (message) {
    marks.messages = true;
    return asMessage(message, value.members, path, json);
  }
  if (!json && value.members.some(([key]) => key === "lc")) {
    throw new Unwritable(
      `${place(path)} has a key "lc", and LangGraph would read it as an object when it is saved as JSON.`,
    );
  }
  return { kind: "object", members: value.members.map(member(path, json, marks)) };
}

function member(path: string, json: boolean, marks: { messages: boolean }) {
  return ([key, one]: [string, Exact]): [string, Exact] => {
    if (key.startsWith("$") && !key.startsWith("$$")) {
      throw new Unwritable(`${place(path)} ${WHY[key] ?? `has "${key}", which is unknown here`}.`);
    }
    const own = key.startsWith("$$") ? key.slice(1) : key;
    return [own, plain(one, `${path}/${own}`, json, marks)];
  };
}

const WHY: Record<string, string> = {
  $type: "is an object of Python, which JSON cannot hold",
  $opaque: "is not opened by the JSON view: it is too large, or of a type that is never opened",
  $delta: "is rebuilt from writes (a delta channel), so it cannot be replaced alone",
  $bytes: "is bytes, which JSON cannot hold",
  $bytearray: "is bytes, which JSON cannot hold",
  $int: "is a large integer, which some readers of JSON change",
  $float: "is a number that is not finite, which JSON cannot hold",
  $number: "is a large number, which some readers of JSON change",
  $map: "is a map with keys that are not text, which JSON cannot hold",
  $string: "is text that is not UTF-8, which JSON cannot hold",
  $timestamp: "is a timestamp, which JSON cannot hold",
  $too_deep: "is nested so deeply that the JSON view leaves it out",
  $ext: "is an extension of msgpack, which JSON cannot hold",
};

function place(path: string): string {
  return path ? `The part ${path}` : "The value";
}

function messageName(value: Exact & { kind: "object" }): string | undefined {
  const [first] = value.members;
  if (first?.[0] !== "$type" || first[1].kind !== "text") {
    return undefined;
  }
  return MESSAGE.exec(first[1].text)?.[1];
}

/**
 * Return the `lc` form of a message: without its `type`, which the class implies, and without
 * nulls.
 */
function asMessage(name: string, fields: [string, Exact][], path: string, json: boolean): Exact {
  const kept = fields.filter(
    ([key, one]) =>
      key !== "$type" && key !== "type" && !(one.kind === "token" && one.token === "null"),
  );
  // Inside a message, the forms of other messages would be read as parts of the outer message.
  const marks = { messages: false };
  const kwargs = kept.map(member(path, json, marks));
  if (marks.messages) {
    throw new Unwritable(`${place(path)} is a message with another message in it.`);
  }
  const id = ["langchain_core", "messages", name].map((text): Exact => ({ kind: "text", text }));
  return {
    kind: "object",
    members: [
      ["lc", { kind: "token", token: "1" }],
      ["type", { kind: "text", text: "constructor" }],
      ["id", { kind: "array", items: id }],
      ["kwargs", { kind: "object", members: kwargs }],
    ],
  };
}

/** Return whether a channel belongs to the graph itself and not to its state. */
export function isOwn(channel: Channel): boolean {
  return /^(__|branch:|join:|start:)/.test(channel.name);
}

/**
 * Return a version above all versions of a checkpoint, of the same kind; undefined: the versions
 * are of several kinds, or are text that does not start with a number.
 *
 * Text versions are LangGraph's: a counter of 32 digits, and random digits that distinguish the
 * branches of a fork.
 */
export function nextVersion(channels: readonly Channel[]): Version["kind"] | undefined {
  const kinds = channels.flatMap(({ version }) => (version ? [version.kind] : []));
  const cases = new Set(kinds.map((kind) => kind.case));
  const [kind] = cases;
  if (cases.size !== 1) {
    return undefined;
  }
  if (kind === "integer") {
    const value = kinds.reduce((most, one) => max(most, one.value as bigint), 0n) + 1n;
    return { case: kind, value };
  }
  if (kind === "number") {
    const greatest = Math.max(...kinds.map((one) => one.value as number));
    return { case: kind, value: Math.trunc(greatest) + 1 };
  }
  const newest = kinds.reduce((most, one) => max(most, one.value as string), "");
  const counter = /^\d+/.exec(newest)?.[0];
  if (counter === undefined) {
    return undefined;
  }
  const value = `${String(BigInt(counter) + 1n).padStart(32, "0")}.${digits()}`;
  return value > newest ? { case: "text", value } : undefined;
}

function max<T extends bigint | string>(one: T, other: T): T {
  return other > one ? other : one;
}

function digits(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte % 10).join("");
}
