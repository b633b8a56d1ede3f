/** Model and tokens of messages, as the frameworks report them. Pure. */
import type { Json } from "../../parts/json/json.ts";
import type { Message } from "./messages.ts";

/** Numbers of tokens; undefined: not reported. */
export interface Usage {
  input: number | undefined;
  output: number | undefined;
  total: number | undefined;
}

type JsonObject = { [key: string]: Json };

const INPUT = ["inputtokens", "prompttokens", "prompttokencount", "requesttokens"];
const OUTPUT = ["outputtokens", "completiontokens", "candidatestokencount", "responsetokens"];
const TOTAL = ["totaltokens", "totaltokencount"];
/** Anthropic's own form counts tokens of its cache beside the input. */
const CACHED = ["cachecreationinputtokens", "cachereadinputtokens"];

/** Return the tokens that the fields of a message report; undefined if the fields report none. */
export function usageOf(fields: JsonObject): Usage | undefined {
  const response = objectIn(fields, "response_metadata");
  for (const holder of [fields, response]) {
    for (const name of ["usage_metadata", "usageMetadata", "usage", "token_usage", "tokenUsage"]) {
      const usage = read(objectIn(holder, name));
      if (usage) {
        return usage;
      }
    }
  }
  return undefined;
}

/** Return the name of the model that made a message; empty if the fields do not tell. */
export function modelOf(fields: JsonObject): string {
  const response = objectIn(fields, "response_metadata");
  for (const holder of [response, fields]) {
    for (const name of ["model_name", "modelName", "model", "model_version", "modelVersion"]) {
      const model = holder[name];
      if (typeof model === "string" && model) {
        return model;
      }
    }
  }
  return "";
}

function read(reported: JsonObject): Usage | undefined {
  const numbers = new Map<string, number>();
  for (const [name, value] of Object.entries(reported)) {
    if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) {
      numbers.set(name.replaceAll("_", "").toLowerCase(), value);
    }
  }
  const first = (names: string[]) => {
    const name = names.find((known) => numbers.has(known));
    return name === undefined ? undefined : numbers.get(name);
  };
  const input = first(INPUT);
  const cached = CACHED.reduce((sum, name) => sum + (numbers.get(name) ?? 0), 0);
  const usage = {
    input: input === undefined ? undefined : input + cached,
    output: first(OUTPUT),
    total: first(TOTAL),
  };
  return Object.values(usage).every((number) => number === undefined) ? undefined : usage;
}

function objectIn(fields: JsonObject, name: string): JsonObject {
  const value = fields[name];
  return value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
}

/** What a conversation cost, as far as its messages report their tokens. */
export interface Sums {
  calls: number;
  /** Sums of tokens; undefined where no message reports the number. */
  usage: Usage;
  /** Number of the assistant's messages. */
  answers: number;
  /** Number of the assistant's messages that report tokens. */
  reporting: number;
}

/**
 * Return the sums of a conversation.
 *
 * Messages with one ID are one answer of the model, saved in parts or saved again: its tokens count
 * once, as they were reported last.
 */
export function sumsOf(messages: readonly Message[]): Sums {
  const answers = new Map<string, Usage | undefined>();
  for (const [index, { id, role, usage }] of messages.entries()) {
    if (role === "assistant" || usage) {
      const key = id || `no ID ${index}`;
      answers.set(key, usage ?? answers.get(key));
    }
  }
  const reported = [...answers.values()].filter((usage) => usage !== undefined);
  const sum = (part: (usage: Usage) => number | undefined) => {
    const known = reported.map(part).filter((number) => number !== undefined);
    return known.length > 0 ? known.reduce((one, other) => one + other) : undefined;
  };
  return {
    calls: messages.reduce((number, { calls }) => number + calls.length, 0),
    usage: {
      input: sum(({ input }) => input),
      output: sum(({ output }) => output),
      total: sum(({ total }) => total),
    },
    answers: answers.size,
    reporting: reported.length,
  };
}
