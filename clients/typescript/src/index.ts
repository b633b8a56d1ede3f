/**
 * TuskPoint: checkpoints of AI agents, stored safely and verifiably.
 *
 * `Client` is for agents without LangGraph.js. Agents with LangGraph.js use `TuskPointSaver` from
 * "tuskpoint/langgraph". The messages of the contract are in "tuskpoint/v1/*".
 */

export { Client } from "./client/client.js";
export type { CallOptions, ConnectionOptions } from "./transport/connection.js";
export type { CredentialOptions } from "./transport/credentials.js";
export {
  AlreadyExists,
  Conflict,
  CursorCompacted,
  DataLoss,
  DeadlineExceeded,
  DescriptorMismatch,
  EffectError,
  EffectInputChanged,
  EffectNotDone,
  EffectNotRecorded,
  EffectNotUnknown,
  EffectRefused,
  EffectRunning,
  EffectUnknown,
  HashMismatch,
  InvalidDescriptor,
  InvalidRequest,
  LeaseLost,
  NotFound,
  PermissionDenied,
  PreconditionFailed,
  ResourceExhausted,
  ServerError,
  ThreadBusy,
  ThreadDeleted,
  TuskPointError,
  Unauthenticated,
  Unavailable,
  Unimplemented,
  UnreadableValue,
  ValuesMissing,
} from "./errors.js";
export type { EffectErrorDetails, ErrorDetails, FieldViolation, StatusName } from "./errors.js";
export { EffectRecord, inputDigest, NotDone, Refused } from "./client/effects/records.js";
export type {
  BeginEffectOptions,
  CompleteEffectOptions,
  EffectAttempt,
  EffectOptions,
  EffectStateName,
  EffectWork,
  FailEffectOptions,
  GetEffectOptions,
  ListEffectsOptions,
  OnUnknownName,
  OutcomeName,
  ResolveEffectOptions,
} from "./client/effects/records.js";
export type {
  Adoption,
  AdoptOfferOptions,
  AdoptOptions,
  AdoptProgress,
  Descriptor,
  ListHandoffsOptions,
  OfferRecord,
  OfferState,
  StageName,
  WatchHandoffsOptions,
} from "./messages/handoff.js";
export type {
  EventName,
  HistoryOptions,
  ReplayOptions,
  ThreadEvent,
  WatchOptions,
} from "./messages/history.js";
export type { AnswerOptions, InterruptOptions, OpenInterrupt } from "./client/interrupts.js";
export type { LeaseOptions, LeaseRequest, OnBusyName } from "./client/leases.js";
export type { LeaseRecord } from "./messages/threads.js";
export type { Json, JsonObject } from "./messages/json.js";
export type * from "./client/options.js";
export type { RawClient, RawClients } from "./transport/raw.js";
export type {
  Change,
  ChangeName,
  CheckpointVerdict,
  DescentName,
  Diff,
  LineageStep,
  ThreadLineage,
  VerdictName,
  Verification,
} from "./messages/lineage.js";
export type {
  Channel,
  CheckpointRecord,
  Lineage,
  Location,
  Reference,
  Write,
} from "./messages/records.js";
export type {
  MetricName,
  SearchModeName,
  SearchOptions,
  SearchResult,
  SearchResults,
} from "./messages/search.js";
export type {
  FoundItems,
  GetItemsOptions,
  ItemChange,
  ItemKey,
  ItemRecord,
  ListItemNamespacesOptions,
  SearchItemsOptions,
} from "./messages/items.js";
export type {
  Receipt,
  RetentionEffect,
  RetentionPreview,
  RetentionRule,
} from "./messages/retention.js";
export type { SnapshotRecord } from "./messages/snapshots.js";
export type { Failure, Question, StepRecord, TokenUsage } from "./messages/steps.js";
export type {
  ArchiveStatus,
  ClockJump,
  Flushed,
  ManifestRecord,
  ServerInfo,
  StateName,
  ThreadRecord,
} from "./messages/threads.js";
export type { TrailEntry } from "./messages/trail.js";
export type { DurabilityName, SourceName, ViewName } from "./messages/words.js";
