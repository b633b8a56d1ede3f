/** Search: the records and the requests. */

import { create } from "@bufbuild/protobuf";

import type { CallOptions } from "../transport/connection.js";
import { invalidField } from "../errors.js";
import { WarningKind } from "../gen/tuskpoint/v1/errors_pb.js";
import {
  SearchCheckpointsRequestSchema,
  SearchMetric,
  SearchMode,
  type SearchCheckpointsRequest,
  type SearchCheckpointsResponse,
} from "../gen/tuskpoint/v1/search_service_pb.js";
import { checkText, decodeObject, encodeObject, type JsonObject } from "./json.js";
import { choice, nameOf } from "./words.js";

/** Method of a search: by words, by meaning, or by MemWal. */
export type SearchModeName = "lexical" | "vector" | "memwal";

/** Distance of two vectors. */
export type MetricName = "cosine" | "l2";

const MODES: Readonly<Record<SearchModeName, SearchMode>> = {
  lexical: SearchMode.LEXICAL,
  vector: SearchMode.VECTOR,
  memwal: SearchMode.MEMWAL,
};

const METRICS: Readonly<Record<MetricName, SearchMetric>> = {
  cosine: SearchMetric.COSINE,
  l2: SearchMetric.L2,
};

const MAX_LIMIT = 2 ** 32 - 1;

/** Options of a search. */
export interface SearchOptions extends CallOptions {
  /** Most results, 1 to 100. Default: 5. */
  readonly limit?: number | undefined;
  /** Only this thread. Default: all. */
  readonly threadId?: string | undefined;
  /** Only threads that this agent drives. Default: all. */
  readonly agentId?: string | undefined;
  /**
   * Only checkpoints whose metadata has all of these entries, with equal values of the same type.
   * There are no operators.
   */
  readonly filter?: Readonly<Record<string, unknown>> | undefined;
  /**
   * Method of the search. Default: the best method that the server has; `SearchResults.mode` names
   * it.
   */
  readonly mode?: SearchModeName | undefined;
  /** Distance of two vectors. Default: "cosine". */
  readonly metric?: MetricName | undefined;
}

/** A checkpoint that a search returned: its identity, and the text that matched. */
export interface SearchResult {
  /** The thread. */
  readonly threadId: string;
  /** The namespace of the thread; empty is the root. */
  readonly checkpointNs: string;
  /** The checkpoint. */
  readonly checkpointId: string;
  /** One sentence about what happened; may be empty. */
  readonly summary: string;
  /** The searched text of the state, or the summary if the state has no text. */
  readonly content: string;
  /** The metadata that was saved with the checkpoint. */
  readonly metadata: JsonObject;
  /** Distance from the query; smaller is nearer. Comparable only within one answer. */
  readonly distance: number;
  /** Whether the checkpoint has more text than `content`, which is the latest part. */
  readonly truncated: boolean;
}

/** The results of a search, nearest first, and its method. */
export interface SearchResults {
  /** The results. */
  readonly results: readonly SearchResult[];
  /** Method of the search; a mode that only a newer server knows is its number. */
  readonly mode: SearchModeName | (string & {});
  /** Meaning of `distance`: "cosine", "l2", or "bm25" by words. */
  readonly metric: string;
  /** Checkpoints that the search could not find yet: not indexed, or without a vector. */
  readonly unindexed: bigint;
  /** Whether more matching checkpoints may exist that the search did not examine. */
  readonly truncated: boolean;
  /** Warnings: the kind, such as "search_fell_back", and a message for people. */
  readonly warnings: readonly { readonly kind: string; readonly message: string }[];
}

/**
 * Return the request of a search.
 *
 * @param query - Words, or a vector.
 * @throws InvalidRequest - An argument cannot be sent.
 */
export function searching(
  query: string | ArrayLike<number>,
  options: SearchOptions,
): SearchCheckpointsRequest {
  const { limit = 5, threadId, agentId = "", filter, mode, metric = "cosine" } = options;
  if (threadId === "") {
    throw invalidField("threadId", "it must not be empty; leave it out to search all threads");
  }
  if (!Number.isInteger(limit) || limit < 1) {
    throw invalidField("limit", `it must be a whole number, 1 or more, not ${limit}`);
  }
  return create(SearchCheckpointsRequestSchema, {
    query: queryOf(query),
    threadId: threadId ?? "",
    agentId,
    filterJson: encodeObject("filter", filter),
    limit: Math.min(limit, MAX_LIMIT),
    mode: mode === undefined ? SearchMode.UNSPECIFIED : choice("mode", mode, MODES),
    metric: choice("metric", metric, METRICS),
  });
}

/** Return the answer of a search as records. */
export function searchResults(answer: SearchCheckpointsResponse): SearchResults {
  return {
    results: answer.results.map((one) => ({
      threadId: one.ref?.threadId ?? "",
      checkpointNs: one.ref?.checkpointNs ?? "",
      checkpointId: one.ref?.checkpointId ?? "",
      summary: one.summary,
      content: one.content || one.summary,
      metadata: decodeObject(one.metadataJson),
      distance: one.distance,
      truncated: one.truncated,
    })),
    mode: nameOf(SearchMode, answer.mode),
    metric: answer.metric,
    unindexed: answer.unindexedCheckpoints,
    truncated: answer.truncated,
    warnings: answer.warnings.map(({ kind, message }) => ({
      kind: nameOf(WarningKind, kind),
      message,
    })),
  };
}

/**
 * Return the components of a vector.
 *
 * @throws InvalidRequest - A component is not a finite number of 32 bits.
 */
export function components(field: string, vector: ArrayLike<number>): number[] {
  const values = Array.from(vector);
  if (!values.every((one) => typeof one === "number" && Number.isFinite(Math.fround(one)))) {
    throw invalidField(field, "its components must be finite numbers of 32 bits");
  }
  return values;
}

function queryOf(query: string | ArrayLike<number>): SearchCheckpointsRequest["query"] {
  if (typeof query === "string") {
    checkText("query", query);
    return { case: "text", value: query };
  }
  const values = components("query", query);
  return { case: "vector", value: { $typeName: "tuskpoint.v1.QueryVector", values } };
}
