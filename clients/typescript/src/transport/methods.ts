/**
 * Properties of the contract's methods: how long each method may take, and which calls may be sent
 * twice.
 */

import {
  clone,
  type DescMessage,
  type DescMethod,
  type DescMethodUnary,
  type Message,
  type MessageShape,
} from "@bufbuild/protobuf";
import { EmptySchema } from "@bufbuild/protobuf/wkt";

import { AdminService } from "../gen/tuskpoint/v1/admin_service_pb.js";
import { Durability } from "../gen/tuskpoint/v1/checkpoint_pb.js";
import {
  CheckpointService,
  type SaveCheckpointRequest,
} from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import { HandoffService } from "../gen/tuskpoint/v1/handoff_service_pb.js";
import { HistoryService } from "../gen/tuskpoint/v1/history_service_pb.js";
import { SnapshotService } from "../gen/tuskpoint/v1/snapshot_service_pb.js";
import { ThreadService } from "../gen/tuskpoint/v1/thread_service_pb.js";
import type { Repeat } from "./retry.js";

/**
 * How long a call may take: "quick" calls have the client's own deadline; "long" calls wait for the
 * blob store, carry large values or touch many checkpoints; "stream" calls run at the pace of the
 * reader; an "endless" call has no deadline.
 */
export type Patience = "quick" | "long" | "stream" | "endless";

const PATIENCE: ReadonlyMap<DescMethod, Patience> = new Map<DescMethod, Patience>([
  [CheckpointService.method.exchange, "endless"],
  [CheckpointService.method.loadCheckpoint, "stream"],
  [CheckpointService.method.listCheckpoints, "stream"],
  [CheckpointService.method.getDeltaHistory, "stream"],
  [ThreadService.method.deleteThread, "long"],
  [ThreadService.method.setRetention, "long"],
  [ThreadService.method.setSearchable, "long"],
  [ThreadService.method.copyThread, "long"],
  [ThreadService.method.pruneThreads, "long"],
  [ThreadService.method.deleteRuns, "long"],
  [ThreadService.method.previewRetention, "long"],
  [ThreadService.method.eraseThreads, "long"],
  [ThreadService.method.forkThread, "long"],
  [ThreadService.method.rollbackThread, "long"],
  [ThreadService.method.diffCheckpoints, "long"],
  [ThreadService.method.verifyThread, "stream"],
  [HistoryService.method.replayThread, "stream"],
  [HistoryService.method.watchThread, "endless"],
  [HandoffService.method.createHandoff, "long"],
  [HandoffService.method.adoptHandoff, "long"],
  [HandoffService.method.watchHandoffs, "endless"],
  [SnapshotService.method.createSnapshot, "long"],
  [SnapshotService.method.restoreSnapshot, "long"],
  [SnapshotService.method.deleteSnapshot, "long"],
  [AdminService.method.flush, "long"],
]);

/** Return how long a call may take. */
export function patienceOf(method: DescMethod, request: Message): Patience {
  const patience = PATIENCE.get(method) ?? "quick";
  const waits = "durability" in request && request.durability === Durability.CERTIFIED;
  return patience === "quick" && waits ? "long" : patience;
}

/**
 * Return whether a call may be sent twice: not a save without an ID, and not a mutation without a
 * name. All other calls are upserts or reads, or have a request ID.
 */
export function repeatOf(request: Message): Repeat {
  if (isSave(request)) {
    return request.checkpoint?.ref?.checkpointId ? "safe" : "unsafe";
  }
  return lacksRequestId(request) ? "unsafe" : "safe";
}

/**
 * Return whether a request has an empty request ID, with which the server detects a repeated
 * request.
 */
export function lacksRequestId(request: Message): request is Message & { requestId: string } {
  return "requestId" in request && request.requestId === "";
}

function isSave(request: Message): request is SaveCheckpointRequest {
  return request.$typeName === "tuskpoint.v1.SaveCheckpointRequest";
}

/** The unary methods of the calls on a stream. */
export const ON_STREAMS = {
  save: CheckpointService.method.saveCheckpoint,
  writes: CheckpointService.method.saveWrites,
  get: CheckpointService.method.getCheckpoint,
} as const;

/** The health check, which any server answers, even a server without this service. */
export const HEALTH = {
  ...AdminService.method.getServerInfo,
  name: "Check",
  parent: { ...AdminService, typeName: "grpc.health.v1.Health" },
  input: EmptySchema,
  output: EmptySchema,
} as unknown as DescMethodUnary<typeof EmptySchema, typeof EmptySchema>;

/** Return the request; an empty `requestId` is filled in, so that the request may be sent twice. */
export function withRequestId<T extends DescMessage>(
  schema: T,
  message: MessageShape<T>,
): MessageShape<T> {
  if (!lacksRequestId(message)) {
    return message;
  }
  const copy = clone(schema, message);
  return Object.assign(copy, { requestId: crypto.randomUUID() });
}

/** Yield one request. */
export async function* only<T>(request: T): AsyncGenerator<T, void, undefined> {
  yield request;
}
