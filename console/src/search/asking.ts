/** A search in the forms of the page's address and of the call. */
import { SearchMode } from "@contract/search_service_pb.js";

export const LIMITS = [10, 25, 50, 100];
const DEFAULT_LIMIT = 25;

/** A search in the form of its address and its form fields: text alone. */
export interface Question {
  q: string;
  thread: string;
  agent: string;
  filter: string;
  mode: string;
  limit: string;
}

export const MODES: [string, SearchMode, string][] = [
  ["words", SearchMode.LEXICAL, "by words"],
  ["meaning", SearchMode.VECTOR, "by meaning, with vectors"],
  ["memwal", SearchMode.MEMWAL, "by MemWal"],
];

/** Return the search in the parameters of an address. */
export function questionOf(query: Record<string, string>): Question {
  const of = (name: string) => query[name] ?? "";
  const limit = LIMITS.includes(Number(of("limit"))) ? of("limit") : String(DEFAULT_LIMIT);
  const mode = MODES.some(([name]) => name === of("mode")) ? of("mode") : "";
  const [q, thread, agent, filter] = [of("q"), of("thread"), of("agent"), of("filter")];
  return { q, thread, agent, filter, mode, limit };
}

/** Return the fields of an address that differ from the defaults. */
export function filterOf({ agent, filter, mode, limit }: Question) {
  return { agent, filter, mode, limit: limit === String(DEFAULT_LIMIT) ? "" : limit };
}

/** Return the problem of a search before it is sent; empty without a problem. */
export function objection({ q, filter }: Question): string {
  if (q && !q.trim()) {
    return "Name at least one word to search for.";
  }
  if (!filter.trim()) {
    return "";
  }
  let value: unknown;
  try {
    value = JSON.parse(filter);
  } catch (error) {
    return `The metadata filter is not JSON: ${(error as Error).message}.`;
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    return 'The metadata filter must be a JSON object, such as {"outcome": "success"}.';
  }
  const operator = Object.keys(value).find((key) => key.startsWith("$"));
  return operator
    ? `The metadata filter has the key ${operator}; there are no operators, only values that must be equal.`
    : "";
}

/** Return the fields of the call. */
export function requestOf({ q, thread, agent, filter, mode, limit }: Question) {
  return {
    query: { case: "text" as const, value: q },
    threadId: thread,
    agentId: agent,
    filterJson: new TextEncoder().encode(filter.trim()),
    limit: Number(limit),
    mode: MODES.find(([name]) => name === mode)?.[1] ?? SearchMode.UNSPECIFIED,
  };
}
