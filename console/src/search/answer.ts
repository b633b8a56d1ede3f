/** The answer of a search in sentences: its method, and its limits. */
import { type Warning, WarningKind } from "@contract/errors_pb.js";
import { type SearchCheckpointsResponse, SearchMode } from "@contract/search_service_pb.js";
import { counted } from "../words.ts";

const MODES: Record<SearchMode, string> = {
  [SearchMode.UNSPECIFIED]: "in a way that the server does not name",
  [SearchMode.LEXICAL]: "by words",
  [SearchMode.VECTOR]: "by meaning, with vectors",
  [SearchMode.MEMWAL]: "by MemWal",
};

const METRICS: Record<string, string> = {
  cosine: "Cosine distance: 0 is the same direction, 1 is unrelated, 2 is the opposite.",
  l2: "Euclidean distance (l2): 0 is the same vector.",
  bm25: "BM25 as a distance: 0 is nearest, 1 is farthest.",
};

/** Return the method of the search, in words. */
export function modeText(mode: SearchMode): string {
  return MODES[mode];
}

/** Return the meaning of the distances, on one line. */
export function metricText(metric: string): string {
  return METRICS[metric] ?? `${metric}: smaller is nearer.`;
}

export interface LeftOut {
  /** The condition. */
  what: string;
  /** The next action. */
  advice: string;
  /** The server's own message; may be empty. */
  detail: string;
}

/** Return the conditions that limit an answer. */
export function leftOut(answer: SearchCheckpointsResponse, limit: number): LeftOut[] {
  const conditions: LeftOut[] = [];
  const waiting = answer.unindexedCheckpoints;
  if (waiting > 0n) {
    const byMemWal = answer.mode === SearchMode.MEMWAL;
    conditions.push({
      what: byMemWal
        ? `MemWal cannot recall ${counted(waiting, "checkpoint")} yet.`
        : `${counted(waiting, "checkpoint")} of the tenant ${waiting === 1n ? "is" : "are"} not indexed yet, so this search missed ${waiting === 1n ? "it" : "them"}.`,
      advice: byMemWal ? "Search by words to find them." : "Search again in a few seconds.",
      detail: "",
    });
  }
  if (answer.truncated) {
    conditions.push({
      what: "More results may exist: MemWal returns at most 100 memories, and the filters apply to these.",
      advice: "Search by words, or ask for something narrower.",
      detail: "",
    });
  }
  if (answer.results.length >= limit) {
    conditions.push({
      what: `Only the nearest ${limit} are shown.`,
      advice:
        limit < 100
          ? "Raise the limit, or filter by thread, agent or metadata."
          : "Filter by thread, agent or metadata: 100 is the most that a search returns.",
      detail: "",
    });
  }
  return [...conditions, ...answer.warnings.map(ofWarning)];
}

const WARNINGS: Partial<Record<WarningKind, [string, string]>> = {
  [WarningKind.BACKLOG]: [
    "Much waits for certification.",
    "The results are right; look at Operations for the cause.",
  ],
  [WarningKind.SEARCH_FELL_BACK]: [
    "The search was made in another mode than the server is set up for.",
    "The distances belong to the mode above. Operations shows which part of search does not answer; choose a mode to require that mode.",
  ],
  [WarningKind.MEMORIES_DROPPED]: [
    "MemWal has matches that it could not return.",
    "Search by words: the server's own index has them.",
  ],
  [WarningKind.NO_VECTORS]: [
    "Nothing here has a vector, so a search by vectors finds nothing.",
    "Search by words, or give the server an embedder.",
  ],
  [WarningKind.DAMAGED]: [
    "Some matches were left out: their rows were changed outside this server.",
    "Find out who else writes to the database, then restore a backup.",
  ],
  [WarningKind.VALUES_SEALED]: [
    "The journal is sealed: the search knows summaries, and nothing of the state.",
    "Search for words of the summaries.",
  ],
  [WarningKind.TEXT_TRUNCATED]: [
    "Some checkpoints have more text than is indexed, so this search may have missed them.",
    "Search for words of their summaries or of the latest part of their text.",
  ],
};

function ofWarning({ kind, message }: Warning): LeftOut {
  const [what, advice] = WARNINGS[kind] ?? ["The server has a remark.", ""];
  return { what, advice, detail: message };
}
