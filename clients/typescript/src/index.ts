/**
 * TuskPoint: the state of AI agents, kept safe and verifiable.
 *
 * `Client` is for agents without LangGraph.js; those with it take `TuskPointSaver` from
 * "tuskpoint/langgraph". The messages of the contract are at "tuskpoint/v1/*".
 */

export { Client } from "./client.js";
export type { CallOptions, ConnectionOptions } from "./connection.js";
export type { CredentialOptions } from "./credentials.js";
export {
  AlreadyExists,
  Conflict,
  CursorCompacted,
  DataLoss,
  DeadlineExceeded,
  DescriptorMismatch,
  HashMismatch,
  InvalidDescriptor,
  InvalidRequest,
  NotFound,
  PermissionDenied,
  PreconditionFailed,
  ResourceExhausted,
  ServerError,
  ThreadDeleted,
  TuskPointError,
  Unauthenticated,
  Unavailable,
  Unimplemented,
  UnreadableValue,
  ValuesMissing,
} from "./errors.js";
export type { ErrorDetails, FieldViolation, StatusName } from "./errors.js";
export type {
  Adoption,
  AdoptOptions,
  AdoptProgress,
  Descriptor,
  StageName,
} from "./handoff.js";
export type { EventName, ReplayOptions, ThreadEvent, WatchOptions } from "./history.js";
export type { AnswerOptions, InterruptOptions, OpenInterrupt } from "./interrupts.js";
export type { Json, JsonObject } from "./json.js";
export type * from "./options.js";
export type { RawClient, RawClients } from "./raw.js";
export type { Channel, CheckpointRecord, Lineage, Location, Write } from "./records.js";
export type {
  MetricName,
  SearchModeName,
  SearchOptions,
  SearchResult,
  SearchResults,
} from "./search.js";
export type {
  ArchiveStatus,
  Flushed,
  ServerInfo,
  StateName,
  ThreadRecord,
} from "./threads.js";
export type { DurabilityName, SourceName, ViewName } from "./words.js";
