/** The errors of the tasks that failed at a checkpoint. Pure. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import type { Json } from "../parts/json/json.ts";
import { sendsOf, taskName } from "./describe.ts";
import { dataOf, parsed } from "./values.ts";

export interface Failure {
  /** The node that failed. */
  task: string;
  /** Type of the error, such as `ValueError`; empty if it is not known. */
  type: string;
  message: string;
  /** Calls that led to the error, as the framework stored them; empty if it stored none. */
  traceback: string;
}

/** Return the errors of the tasks that failed at the checkpoint. */
export function failuresOf(checkpoint: Checkpoint): Failure[] {
  const failed = checkpoint.writes.filter(({ channel }) => channel === "__error__");
  if (failed.length === 0) {
    return [];
  }
  const sends = sendsOf(checkpoint);
  return failed.map((write) => {
    const data = dataOf(write);
    const value = data ? parsed(data) : { json: null };
    const task = taskName(write.taskId, write.taskPath, sends);
    const error = "json" in value ? errorOf(value.json) : untyped(value.problem);
    return { task, ...error };
  });
}

/** The last `length` characters of a text: the reason of an error is at the end of its message. */
export function ending(text: string, length: number): string {
  return text.slice(-length).replace(/^[\udc00-\udfff]/, ""); // half of a character
}

type ErrorParts = Omit<Failure, "task">;

/** Read an exception: Python's `repr`, a traceback, or an object with a name and a message. */
function errorOf(value: Json): ErrorParts {
  if (typeof value === "string") {
    return fromText(value);
  }
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    const { name, message } = value;
    if (typeof message === "string") {
      return { ...withoutCalls(message), type: typeof name === "string" ? name : "" };
    }
  }
  return untyped(JSON.stringify(value));
}

const REPR = /^([A-Za-z_][\w.]*)\(([\s\S]*)\)$/;
const NAMED = /^([A-Za-z_][\w.]*): ([\s\S]*)$/;

function fromText(text: string): ErrorParts {
  const [, type = "", content = ""] = REPR.exec(text) ?? [];
  if (type) {
    return { ...withoutCalls(unquoted(content)), type };
  }
  const parts = withoutCalls(text);
  const [, name = "", message = ""] = NAMED.exec(parts.message) ?? [];
  return name ? { ...parts, type: name, message } : parts;
}

function untyped(message: string): ErrorParts {
  return { type: "", message, traceback: "" };
}

const CALLS = "Traceback (most recent call last):";

/**
 * Take the traceback out of a message.
 *
 * In Python's the lines of the calls are indented and the error follows; in JavaScript's the calls
 * follow the error. Read by lines: a pattern for all of them takes minutes on odd texts.
 */
function withoutCalls(message: string): ErrorParts {
  const lines = message.split("\n");
  let start = lines.findLastIndex((line) => line.endsWith(CALLS)) + 1;
  while (start > 0 && /^(?:[ \t]|$)/.test(lines[start] ?? "end")) {
    start += 1;
  }
  let end = lines.length;
  while (end > start && /^[ \t]+at /.test(lines[end - 1] ?? "")) {
    end -= 1;
  }
  const isFound = (start > 0 || end < lines.length) && start < end;
  const rest = lines.slice(start, end).join("\n").trimEnd();
  return isFound ? { ...untyped(rest), traceback: message } : untyped(message);
}

const LITERAL = /^'(?:[^'\\]|\\[\s\S])*'$|^"(?:[^"\\]|\\[\s\S])*"$/;
const ESCAPES: Record<string, string> = { n: "\n", t: "\t" };

/** Return the text of a string literal of Python; another text as it is. */
function unquoted(content: string): string {
  if (!LITERAL.test(content)) {
    return content;
  }
  return content
    .slice(1, -1)
    .replace(/\\([nt'"\\])/g, (_, character: string) => ESCAPES[character] ?? character);
}
