/**
 * The values of interop scenarios: inserts variables and generated values, matches results.
 *
 * The meaning of the forms is in `tests/interop/scenarios/README.md`.
 */

import type { Json, JsonObject } from "../src/messages/json.js";

const WHOLE = /^\$([a-z_]+)$/;
const INSIDE = /\$\$|\$\{([a-z_]+)\}/g;

/** Value of each name. */
export type Variables = Record<string, Json>;

/** The result differs from the expected value; the message has the place and the difference. */
export class Mismatch extends Error {}

/** Return a value with its variables and generated values inserted. */
export function fill(value: Json, variables: Variables): Json {
  if (typeof value === "string") {
    return fillText(value, variables);
  }
  if (Array.isArray(value)) {
    return value.map((item) => fill(item, variables));
  }
  return isObject(value) ? fillObject(value, variables) : value;
}

/**
 * Return the value at a path such as "checkpoint.ref" or "0.thread_id"; an empty path is the
 * result.
 */
export function at(result: Json, path: string): Json {
  if (path === "") {
    return result;
  }
  let value: Json | undefined = result;
  for (const step of path.split(".")) {
    value = Array.isArray(value) ? value[Number(step)] : member(value, step);
  }
  if (value === undefined) {
    throw new Mismatch(`there is no ${path} in ${shown(result)}`);
  }
  return value;
}

/**
 * Pass if a result matches.
 *
 * @throws Mismatch - The result does not match.
 */
export function check(expected: Json, actual: Json, where = "result"): void {
  if (isObject(expected)) {
    checkObject(expected, actual, where);
  } else if (Array.isArray(expected)) {
    if (!Array.isArray(actual) || actual.length !== expected.length) {
      throw new Mismatch(`${where} is ${shown(actual)}, not a list of ${expected.length}`);
    }
    for (const [index, wanted] of expected.entries()) {
      check(wanted, actual[index] as Json, `${where}.${index}`);
    }
  } else if (expected !== actual) {
    throw new Mismatch(`${where} is ${shown(actual)}, not ${shown(expected)}`);
  }
}

function fillText(text: string, variables: Variables): Json {
  const whole = WHOLE.exec(text)?.[1];
  if (whole !== undefined) {
    return variable(whole, variables);
  }
  return text.replaceAll(INSIDE, (_, name: string | undefined) =>
    name === undefined ? "$" : String(variable(name, variables)),
  );
}

function variable(name: string, variables: Variables): Json {
  const value = variables[name];
  if (value === undefined) {
    throw new Mismatch(`there is no variable ${name}`);
  }
  return value;
}

function fillObject(value: JsonObject, variables: Variables): Json {
  const text = value["$text"];
  if (isObject(text)) {
    return String(fill(text["of"] as Json, variables)).repeat(Number(text["times"]));
  }
  const bytes = value["$base64"];
  if (isObject(bytes)) {
    const repeated = String(bytes["of"]).repeat(Number(bytes["times"]));
    return Buffer.from(repeated, "hex").toString("base64");
  }
  const json = value["$json_base64"];
  if (json !== undefined) {
    return Buffer.from(JSON.stringify(fill(json, variables)), "utf8").toString("base64");
  }
  const filled = Object.entries(value).map(([key, item]) => [key, fill(item, variables)] as const);
  return Object.fromEntries(filled);
}

function checkObject(expected: JsonObject, actual: Json, where: string): void {
  if (expected["$any"] === true) {
    return;
  }
  if (expected["$length"] !== undefined) {
    if (lengthOf(actual) !== expected["$length"]) {
      throw new Mismatch(`${where} is ${shown(actual)}, not of length ${expected["$length"]}`);
    }
  } else if (expected["$contains"] !== undefined) {
    if (!contains(actual, expected["$contains"])) {
      throw new Mismatch(`${where} is ${shown(actual)}, without ${shown(expected["$contains"])}`);
    }
  } else if (expected["$not"] !== undefined) {
    if (matches(expected["$not"], actual)) {
      throw new Mismatch(`${where} is ${shown(actual)}`);
    }
  } else {
    checkMembers(expected, actual, where);
  }
}

function checkMembers(expected: JsonObject, actual: Json, where: string): void {
  if (!isObject(actual)) {
    throw new Mismatch(`${where} is ${shown(actual)}, not an object`);
  }
  for (const [key, wanted] of Object.entries(expected)) {
    const got = member(actual, key);
    const isUnwanted = isObject(wanted) && wanted["$absent"] === true;
    if (isUnwanted && got !== undefined) {
      throw new Mismatch(`${where}.${key} is ${shown(got)} and should be absent`);
    }
    if (!isUnwanted) {
      if (got === undefined) {
        throw new Mismatch(`${where}.${key} is absent`);
      }
      check(wanted, got, `${where}.${key}`);
    }
  }
}

/** Return the size of a list or an object, or the number of code points of a text. */
function lengthOf(value: Json): number | undefined {
  if (typeof value === "string" || Array.isArray(value)) {
    return [...value].length;
  }
  return isObject(value) ? Object.keys(value).length : undefined;
}

function contains(actual: Json, wanted: Json): boolean {
  if (typeof actual === "string") {
    return typeof wanted === "string" && actual.includes(wanted);
  }
  return Array.isArray(actual) && actual.some((item) => matches(wanted, item));
}

function matches(wanted: Json, actual: Json): boolean {
  try {
    check(wanted, actual);
    return true;
  } catch (error) {
    if (error instanceof Mismatch) {
      return false;
    }
    throw error;
  }
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function member(value: Json | undefined, key: string): Json | undefined {
  return isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
}

function shown(value: Json): string {
  const text = JSON.stringify(value);
  return text.length <= 300 ? text : `${text.slice(0, 300)}...`;
}
