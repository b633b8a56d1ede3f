/** JSON values in a form for people: plain JSON, and the escapes of the JSON view. Pure. */
import { bytes, count, counted } from "../../words.ts";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** The displayed form of a value: a leaf with its text, or a branch with members. */
export type Shown =
  | { kind: "null" | "boolean" | "number" | "text" | "special"; text: string }
  | Branch;

export interface Branch {
  kind: "branch";
  /** The kind of the branch, such as `[3]`, `{2}` or `HumanMessage {4}`. */
  label: string;
  /** Brackets around the members in a preview. */
  brackets: [string, string];
  size: number;
  /** Whether members have positions instead of names. */
  list: boolean;
  /** Return the members from `start` to before `end`. */
  members: (start: number, end: number) => [string, Json][];
}

/** Converts a value to its displayed form: as plain JSON, or as the JSON view. */
export type Reading = (value: Json) => Shown;

export type JsonObject = { [key: string]: Json };

/** Return whether a value is an object, not a list. */
export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const FIRST_BYTES = 16; // bytes of a binary value that are shown
const LONGEST_KEY = 80; // characters of a key that is an encoded value

/** Return the displayed form of a value without escapes. */
export function plain(value: Json): Shown {
  if (Array.isArray(value)) {
    return list(value);
  }
  if (value !== null && typeof value === "object") {
    return named("", Object.keys(value), value, (key) => key);
  }
  return leaf(value);
}

/**
 * Return the displayed form of a value of the JSON view: escapes are decoded, keys lose an added
 * `$`.
 */
export function viewed(value: Json): Shown {
  if (Array.isArray(value)) {
    return list(value);
  }
  if (value === null || typeof value !== "object") {
    return leaf(value);
  }
  for (const name of ESCAPE_NAMES) {
    const shown = Object.hasOwn(value, name) ? ESCAPES[name]?.(value) : undefined;
    if (shown) {
      return shown;
    }
  }
  return named(constructorName(value), Object.keys(value), value, unescaped);
}

/** Return the value on one line of about `longest` characters. */
export function preview(value: Json, read: Reading, longest = 80): string {
  const shown = read(value);
  if (shown.kind !== "branch") {
    const text = shown.text.slice(0, longest + 1);
    const cut =
      text.length > longest || shown.text.length > longest ? `${text.slice(0, longest)}…` : text;
    return shown.kind === "text" ? JSON.stringify(cut) : cut;
  }
  const [left, right] = shown.brackets;
  const parts: string[] = [];
  let room = longest - left.length;
  for (let index = 0; index < shown.size; index += 1) {
    const [member] = shown.members(index, index + 1);
    if (!member || room <= 0) {
      parts.push("…");
      break;
    }
    const name = shown.list ? "" : `${member[0].slice(0, LONGEST_KEY)}: `;
    const text = name + preview(member[1], read, Math.max(room - name.length, 8));
    parts.push(text);
    room -= text.length + 2;
  }
  return left + parts.join(", ") + right;
}

/**
 * Divide a long range into equal parts of at most a hundred entries, or of a hundred such parts,
 * and so on.
 */
export function ranges(start: number, end: number, most = 100): [number, number][] {
  let step = most;
  while ((end - start) / step > most) {
    step *= most;
  }
  const parts: [number, number][] = [];
  for (let at = start; at < end; at += step) {
    parts.push([at, Math.min(at + step, end)]);
  }
  return parts;
}

/** Remove the `$` that the JSON view adds to keys that start with a `$`. */
export function unescaped(key: string): string {
  return key.startsWith("$$") ? key.slice(1) : key;
}

function leaf(value: null | boolean | number | string): Shown {
  if (typeof value === "string") {
    return { kind: "text", text: value };
  }
  const kind = value === null ? "null" : typeof value === "number" ? "number" : "boolean";
  return { kind, text: String(value) };
}

function list(items: Json[], name = ""): Branch {
  return {
    kind: "branch",
    label: name ? `${name} [${count(items.length)}]` : `[${count(items.length)}]`,
    brackets: [`${name}[`, "]"],
    size: items.length,
    list: true,
    members: (start, end) =>
      items.slice(start, end).map((item, index) => [String(start + index), item]),
  };
}

function named(
  name: string,
  keys: string[],
  value: JsonObject,
  spelled: (key: string) => string,
): Branch {
  return {
    kind: "branch",
    label: name ? `${name} {${count(keys.length)}}` : `{${count(keys.length)}}`,
    brackets: [`${name}{`, "}"],
    size: keys.length,
    list: false,
    members: (start, end) =>
      keys.slice(start, end).map((key) => [spelled(key), value[key] ?? null]),
  };
}

/** Return the class of an object of LangChain's own JSON; empty for other objects. */
function constructorName({ lc, id }: JsonObject): string {
  const name = Array.isArray(id) ? id.at(-1) : undefined;
  return typeof lc === "number" && typeof name === "string" ? name : "";
}

function special(text: string): Shown {
  return { kind: "special", text };
}

/** Escapes by the key that identifies them; of several keys, the first that a value has. */
const ESCAPES: Record<string, (value: JsonObject) => Shown | undefined> = {
  $int: ({ $int }) => ({ kind: "number", text: String($int) }),
  $float: ({ $float }) => ({ kind: "number", text: String($float) }),
  $number: ({ $number }) => ({ kind: "number", text: String($number) }),
  $timestamp: ({ $timestamp }) => special(String($timestamp)),
  $string: ({ $string }) => special(`text that is not UTF-8, ${bytesText($string)}`),
  $bytearray: ({ $bytearray }) => special(`bytearray, ${bytesText($bytearray)}`),
  $map: ({ $map }) => (Array.isArray($map) ? map($map) : undefined),
  $too_deep: ({ $too_deep }) => special(`${String($too_deep)} below 64 levels: not shown`),
  $opaque: opaque,
  $ext: ({ $ext, $bytes }) => special(`extension ${String($ext)}, ${bytesText($bytes)}`),
  $delta: delta,
  $writes: rebuilt,
  $type: object,
  $bytes: ({ $bytes }) => special(`bytes, ${bytesText($bytes)}`),
};

const ESCAPE_NAMES = Object.keys(ESCAPES);

function bytesText(base64: Json | undefined): string {
  if (typeof base64 !== "string") {
    return "unreadable";
  }
  const padding = base64.endsWith("==") ? 2 : base64.endsWith("=") ? 1 : 0;
  const size = Math.floor((base64.length * 3) / 4) - padding;
  const first = decoded(base64.slice(0, Math.ceil(FIRST_BYTES / 3) * 4)).slice(0, FIRST_BYTES);
  const rest = size > FIRST_BYTES ? " …" : "";
  return size === 0 ? "0 B" : `${bytes(size)}: ${first.join(" ")}${rest}`;
}

function decoded(base64: string): string[] {
  try {
    return Array.from(atob(base64), (byte) => byte.charCodeAt(0).toString(16).padStart(2, "0"));
  } catch (error) {
    if (error instanceof DOMException) {
      return ["(not base64)"];
    }
    throw error;
  }
}

function map(pairs: Json[]): Branch {
  return {
    kind: "branch",
    label: `map {${count(pairs.length)}}`,
    brackets: ["map{", "}"],
    size: pairs.length,
    list: false,
    members: (start, end) =>
      pairs.slice(start, end).map((pair) => {
        const [key = null, member = null] = Array.isArray(pair) ? pair : [];
        const name = typeof key === "string" ? key : preview(key, viewed, LONGEST_KEY);
        return [name, member];
      }),
  };
}

const PROBLEMS: Record<string, string> = {
  too_large: "larger than the JSON view shows",
  malformed: "its bytes do not match its type",
  too_deep: "nested too deeply to be shown",
};

function opaque({ $opaque, $size, $problem, $bytes }: JsonObject): Shown {
  const size = typeof $size === "number" ? bytes($size) : "unknown size";
  const why = $problem === undefined ? "a type that is never opened" : PROBLEMS[String($problem)];
  const first = $bytes === undefined ? "" : `; begins with ${bytesText($bytes)}`;
  return special(`${String($opaque)}, ${size}: ${why ?? String($problem)}${first}`);
}

function delta({ $delta, $seed }: JsonObject): Shown | undefined {
  if (!Array.isArray($delta)) {
    return undefined;
  }
  const writes = $delta;
  const seeds: [string, Json][] = $seed === undefined ? [] : [["stored value", $seed]];
  const label = `rebuilt from ${counted(writes.length, "write")}`;
  return {
    kind: "branch",
    label: seeds.length > 0 ? `${label} onto a stored value` : label,
    brackets: ["{", "}"],
    size: seeds.length + writes.length,
    list: false,
    members: (start, end) => {
      const skipped = seeds.length;
      const first = Math.max(start - skipped, 0);
      const shown = writes.slice(first, Math.max(end - skipped, 0));
      return [
        ...seeds.slice(start, end),
        ...shown.map((write, index): [string, Json] => [`write ${first + index + 1}`, write]),
      ];
    },
  };
}

/** Return the text that a comparison shows in place of a delta channel's value. */
function rebuilt({ $writes, $seed }: JsonObject): Shown {
  const onto = typeof $seed === "string" ? ` onto the stored value ${$seed.slice(0, 8)}…` : "";
  return special(`rebuilt from ${counted(Number($writes), "write")}${onto}`);
}

/** Return the displayed form of a Python object: its type, and its fields. */
function object(value: JsonObject): Shown {
  const name = String(value["$type"]).split(".").at(-1) ?? "";
  const { $value } = value;
  const keys = Object.keys(value).filter((key) => key !== "$type" && key !== "$method");
  if (keys.length === 1 && $value !== undefined) {
    if (Array.isArray($value)) {
      return list($value, name);
    }
    const inner = viewed($value);
    if (inner.kind !== "branch") {
      return special(`${name} ${inner.text}`);
    }
  }
  return named(name, keys, value, (key) => PARTS[key] ?? unescaped(key));
}

const PARTS: Record<string, string> = {
  $value: "value",
  $args: "arguments",
  $fields: "fields",
};
