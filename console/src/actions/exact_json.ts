/**
 * JSON text with the information that `JSON.parse` loses: the digits of numbers, and the position
 * of an error.
 *
 * Edited values are read and written with it, so that unedited parts stay unchanged: `10.0` does
 * not become `10`, and a large integer keeps its last digits.
 */

export type Exact =
  | { kind: "object"; members: [string, Exact][] }
  | { kind: "array"; items: Exact[] }
  | { kind: "text"; text: string }
  /** A number, `true`, `false` or `null`, as written. */
  | { kind: "token"; token: string };

const DEEPEST = 500; // levels; the server accepts no more in a value that it shows

const TOKEN =
  /[ \t\n\r]*(?:([{}[\],:])|("[^"\\]*(?:\\[\s\S][^"\\]*)*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|true\b|false\b|null\b))/y;

/** The text is not JSON. Lines and columns count from 1. */
export class JsonTextError extends Error {
  readonly line: number;
  readonly column: number;

  constructor(problem: string, text: string, offset: number) {
    const before = text.slice(0, offset);
    const line = before.split("\n").length;
    const column = offset - before.lastIndexOf("\n");
    super(`Line ${line}, column ${column}: ${problem}`);
    this.line = line;
    this.column = column;
  }
}

/**
 * Read JSON text.
 *
 * @throws JsonTextError - The text is not JSON, an object has a key twice, or there are too many
 *   levels.
 */
export function readExact(text: string): Exact {
  const reader = new Reader(text);
  const value = reader.value(0);
  reader.end();
  return value;
}

/**
 * Return a value as JSON without white space or, with `indent` spaces per level, over several
 * lines.
 */
export function writeExact(value: Exact, indent = 0, level = 0): string {
  const [before, after] = indent
    ? [`\n${" ".repeat(indent * (level + 1))}`, `\n${" ".repeat(indent * level)}`]
    : ["", ""];
  const inner = (one: Exact) => writeExact(one, indent, level + 1);
  switch (value.kind) {
    case "object": {
      const colon = indent ? ": " : ":";
      const members = value.members.map(
        ([key, one]) => before + JSON.stringify(key) + colon + inner(one),
      );
      return members.length === 0 ? "{}" : `{${members.join(",")}${after}}`;
    }
    case "array":
      return value.items.length === 0
        ? "[]"
        : `[${value.items.map((one) => before + inner(one)).join(",")}${after}]`;
    case "text":
      return JSON.stringify(value.text);
    case "token":
      return value.token;
  }
}

interface Token {
  /** A punctuation character, `text` or `token`. */
  kind: string;
  text: string;
  offset: number;
}

class Reader {
  private readonly text: string;
  private next: Token | undefined;
  private position = 0;

  constructor(text: string) {
    this.text = text;
    this.next = this.scan();
  }

  value(level: number): Exact {
    const token = this.take("a value");
    if (level > DEEPEST) {
      throw this.error(`There are more than ${DEEPEST} levels.`, token);
    }
    switch (token.kind) {
      case "{":
        return { kind: "object", members: this.members(level) };
      case "[":
        return { kind: "array", items: this.items(level) };
      case "text":
        return { kind: "text", text: this.read(token) };
      case "token":
        return { kind: "token", token: token.text };
      default:
        throw this.error(`A value is expected, not "${token.text}".`, token);
    }
  }

  end(): void {
    if (this.next) {
      throw this.error("The value ends before this.", this.next);
    }
  }

  private members(level: number): [string, Exact][] {
    const members: [string, Exact][] = [];
    const keys = new Set<string>();
    if (this.skip("}")) {
      return members;
    }
    do {
      const token = this.take("a key");
      if (token.kind !== "text") {
        throw this.error(`A key in double quotes is expected, not "${token.text}".`, token);
      }
      const key = this.read(token);
      if (keys.has(key)) {
        throw this.error(`The key ${shown(token.text)} comes twice.`, token);
      }
      keys.add(key);
      this.expect(":");
      members.push([key, this.value(level + 1)]);
    } while (this.skip(","));
    this.expect("}", ",");
    return members;
  }

  private items(level: number): Exact[] {
    const items: Exact[] = [];
    if (this.skip("]")) {
      return items;
    }
    do {
      items.push(this.value(level + 1));
    } while (this.skip(","));
    this.expect("]", ",");
    return items;
  }

  private expect(sign: string, other?: string): void {
    const what = other ? `"${other}" or "${sign}"` : `"${sign}"`;
    const token = this.take(what);
    if (token.kind !== sign) {
      throw this.error(`${what} is expected, not ${shown(token.text)}.`, token);
    }
  }

  private skip(sign: string): boolean {
    const isNext = this.next?.kind === sign;
    if (isNext) {
      this.next = this.scan();
    }
    return isNext;
  }

  private take(what: string): Token {
    const token = this.next;
    if (!token) {
      throw new JsonTextError(
        `The text ends where ${what} is expected.`,
        this.text,
        this.text.length,
      );
    }
    this.next = this.scan();
    return token;
  }

  private scan(): Token | undefined {
    TOKEN.lastIndex = this.position;
    const match = TOKEN.exec(this.text);
    if (!match) {
      return this.rest();
    }
    this.position = TOKEN.lastIndex;
    const [, sign, text, token] = match;
    const own = sign ?? text ?? token ?? "";
    const kind = sign ?? (text === undefined ? "token" : "text");
    return { kind, text: own, offset: this.position - own.length };
  }

  /**
   * Return the next token where the pattern does not match: the end of the text, or a token that is
   * not JSON.
   */
  private rest(): Token | undefined {
    const space = /[ \t\n\r]*/y;
    space.lastIndex = this.position;
    space.exec(this.text);
    const offset = space.lastIndex;
    if (offset === this.text.length) {
      return undefined;
    }
    const problem =
      this.text[offset] === '"'
        ? "A text that begins here does not end."
        : `${shown(this.text.slice(offset, offset + 20).split(/[\s,:]/)[0] ?? "")} is not JSON.`;
    throw new JsonTextError(problem, this.text, offset);
  }

  private read(token: Token): string {
    try {
      return JSON.parse(token.text) as string;
    } catch {
      const problem = "This text has a line break or another character that must be escaped.";
      throw this.error(problem, token);
    }
  }

  private error(problem: string, token: Token): JsonTextError {
    return new JsonTextError(problem, this.text, token.offset);
  }
}

function shown(text: string): string {
  return text.length > 20 ? `${text.slice(0, 20)}…` : text;
}
