/** State as JSON: a value that JSON cannot represent is refused, never dropped or changed. */

import { invalidField, messageOf, UnreadableValue, type InvalidRequest } from "../errors.js";

/** A result of `JSON.parse`. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** A JSON object. */
export type JsonObject = Record<string, Json>;

/** JavaScript's own term is "not well-formed": half of a surrogate pair. */
const NOT_UNICODE = "it has half of a surrogate pair, which UTF-8 cannot represent";

/**
 * Return a value as compact JSON in UTF-8.
 *
 * An object with a method `toJSON`, such as a `Date`, is written as the result of that method. A
 * value that JSON cannot represent is refused: `undefined`, numbers that are not finite, `bigint`,
 * functions, symbols, bytes, maps, sets and other instances of classes, empty slots of arrays,
 * cycles, text that is not Unicode.
 *
 * @param path - Name of the value; the path in the error starts with it.
 * @throws InvalidRequest - The value cannot be written as JSON; `metadata.field` is the path.
 */
export function encodeJson(path: string, value: unknown): Uint8Array {
  try {
    check(path, value, new Set());
    return Buffer.from(JSON.stringify(value), "utf8");
  } catch (error) {
    if (error instanceof RangeError) {
      throw refusal(path, `it is nested too deeply: ${error.message}`);
    }
    throw error;
  }
}

/**
 * Return each value of a state as JSON text.
 *
 * @throws InvalidRequest - The state is not an object, a key is not the name of a channel, or a
 *   value cannot be written as JSON.
 */
export function encodeState(state: Readonly<Record<string, unknown>>): Map<string, Uint8Array> {
  if (typeof state !== "object" || state === null || !isPlain(state)) {
    throw invalidField("state", "it must be an object that maps channels to values");
  }
  const values = new Map<string, Uint8Array>();
  for (const [name, value] of Object.entries(state)) {
    if (name === "" || !name.isWellFormed()) {
      throw invalidField("state", "its keys must be names of channels: strings that are not empty");
    }
    values.set(name, encodeJson(member("state", name), value));
  }
  return values;
}

/**
 * Return metadata, or a filter of metadata, as JSON text; empty for none.
 *
 * @throws InvalidRequest - The value is not an object, or cannot be written as JSON.
 */
export function encodeObject(
  what: string,
  given: Readonly<Record<string, unknown>> | undefined,
): Uint8Array {
  if (given === undefined) {
    return new Uint8Array();
  }
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw invalidField(what, "it is an object");
  }
  return encodeJson(what, given);
}

/** Return the object in a JSON text in UTF-8; no bytes are an empty object. */
export function decodeObject(data: Uint8Array): JsonObject {
  return data.length === 0 ? {} : (JSON.parse(Buffer.from(data).toString("utf8")) as JsonObject);
}

/**
 * Return a decoded value: of type `json`, parsed; of `null`, null; of `bytes`, the bytes.
 *
 * @param name - The channel, for the error.
 * @param what - What has the value, for the error. Default: the channel.
 * @throws UnreadableValue - The value has another type, or is not valid JSON.
 */
export function decodeValue(
  name: string,
  type: string,
  data: Uint8Array,
  what = `channel '${name}'`,
): Json | Uint8Array {
  switch (type) {
    case "json":
      return parsed(name, data, what);
    case "null":
      return null;
    case "bytes":
      return data;
    default:
      throw new UnreadableValue(
        `${what} is of type '${type}', which only the framework that saved it can read ` +
          '(LangGraph\'s types need TuskPointSaver); read it with the view "json", or take its bytes',
        { status: "FAILED_PRECONDITION", metadata: { channel: name, type } },
      );
  }
}

/** Refuse a value that is not a text, or a text that is not Unicode. */
export function checkText(field: string, text: unknown): void {
  if (typeof text !== "string") {
    throw invalidField(field, `it must be a string, not of type ${typeof text}`);
  }
  if (!text.isWellFormed()) {
    throw invalidField(field, NOT_UNICODE);
  }
}

function parsed(name: string, data: Uint8Array, what: string): Json {
  try {
    return JSON.parse(Buffer.from(data).toString("utf8")) as Json;
  } catch (cause) {
    const problem = messageOf(cause);
    throw new UnreadableValue(`${what} has the type json but is not JSON: ${problem}`, {
      status: "DATA_LOSS",
      metadata: { channel: name, type: "json" },
      cause,
    });
  }
}

function check(path: string, value: unknown, above: Set<object>): void {
  switch (typeof value) {
    case "boolean":
      return;
    case "string":
      if (!value.isWellFormed()) {
        throw refusal(path, NOT_UNICODE);
      }
      return;
    case "number":
      if (!Number.isFinite(value)) {
        throw refusal(path, `it is ${value}`);
      }
      return;
    case "object":
      if (value !== null) {
        checkObject(path, value, above);
      }
      return;
    default:
      throw refusal(path, `it is ${typeof value === "undefined" ? "" : "a "}${typeof value}`);
  }
}

function checkObject(path: string, value: object, above: Set<object>): void {
  if (above.has(value)) {
    throw refusal(path, "it holds itself");
  }
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) {
    throw refusal(path, "it is bytes: write them as base64");
  }
  above.add(value);
  if ("toJSON" in value && typeof value.toJSON === "function") {
    check(path, value.toJSON(), above);
  } else if (Array.isArray(value)) {
    // Not forEach, which skips empty slots.
    for (let index = 0; index < value.length; index += 1) {
      check(`${path}[${index}]`, value[index], above);
    }
  } else if (isPlain(value)) {
    checkMembers(path, value, above);
  } else {
    throw refusal(path, `it is an instance of ${value.constructor.name}`);
  }
  above.delete(value);
}

function checkMembers(path: string, value: object, above: Set<object>): void {
  if (Object.getOwnPropertySymbols(value).length > 0) {
    throw refusal(path, "it has a key that is a symbol");
  }
  for (const [key, inner] of Object.entries(value)) {
    if (!key.isWellFormed()) {
      throw refusal(path, `of a key: ${NOT_UNICODE}`);
    }
    check(member(path, key), inner, above);
  }
}

/** Return whether a value is an object and not an instance of a class, in other realms too. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

function member(path: string, key: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;
}

function refusal(path: string, problem: string): InvalidRequest {
  return invalidField(path, `JSON cannot represent it: ${problem}`);
}
