/** The services of the contract as typed clients, on the calls of a `Connection`. */

import type {
  DescMessage,
  DescMethodBiDiStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { makeAnyClient } from "@connectrpc/connect";

import type { CallOptions, Connection } from "./connection.js";
import { AdminService } from "../gen/tuskpoint/v1/admin_service_pb.js";
import { CheckpointService } from "../gen/tuskpoint/v1/checkpoint_service_pb.js";
import { EffectService } from "../gen/tuskpoint/v1/effect_service_pb.js";
import { HandoffService } from "../gen/tuskpoint/v1/handoff_service_pb.js";
import { HistoryService } from "../gen/tuskpoint/v1/history_service_pb.js";
import { LeaseService } from "../gen/tuskpoint/v1/lease_service_pb.js";
import { SearchService } from "../gen/tuskpoint/v1/search_service_pb.js";
import { SnapshotService } from "../gen/tuskpoint/v1/snapshot_service_pb.js";
import { StoreService } from "../gen/tuskpoint/v1/store_service_pb.js";
import { ThreadService } from "../gen/tuskpoint/v1/thread_service_pb.js";

type RawMethod<M> =
  M extends DescMethodUnary<infer I extends DescMessage, infer O extends DescMessage>
    ? (request: MessageInitShape<I>, options?: CallOptions) => Promise<MessageShape<O>>
    : M extends DescMethodServerStreaming<infer I extends DescMessage, infer O extends DescMessage>
      ? (request: MessageInitShape<I>, options?: CallOptions) => AsyncIterable<MessageShape<O>>
      : M extends DescMethodBiDiStreaming<infer I extends DescMessage, infer O extends DescMessage>
        ? (
            requests: AsyncIterable<MessageInitShape<I>>,
            options?: CallOptions,
          ) => AsyncIterable<MessageShape<O>>
        : never;

/** One service of the contract: a function for each of its methods. */
export type RawClient<S extends DescService> = {
  readonly [K in keyof S["method"]]: RawMethod<S["method"][K]>;
};

/**
 * The services of the contract: messages in, messages out.
 *
 * Calls have the deadlines, retries and errors of the client; an empty `requestId` is filled in.
 * Streams are retried only before their first answer, and values are neither cut into chunks nor
 * assembled.
 */
export interface RawClients {
  readonly checkpoints: RawClient<typeof CheckpointService>;
  readonly threads: RawClient<typeof ThreadService>;
  readonly history: RawClient<typeof HistoryService>;
  readonly leases: RawClient<typeof LeaseService>;
  readonly search: RawClient<typeof SearchService>;
  readonly handoffs: RawClient<typeof HandoffService>;
  readonly snapshots: RawClient<typeof SnapshotService>;
  readonly store: RawClient<typeof StoreService>;
  readonly effects: RawClient<typeof EffectService>;
  readonly admin: RawClient<typeof AdminService>;
}

/** Return the services on a connection. */
export function rawClients(connection: Connection): RawClients {
  return {
    checkpoints: rawClient(CheckpointService, connection),
    threads: rawClient(ThreadService, connection),
    history: rawClient(HistoryService, connection),
    leases: rawClient(LeaseService, connection),
    search: rawClient(SearchService, connection),
    handoffs: rawClient(HandoffService, connection),
    snapshots: rawClient(SnapshotService, connection),
    store: rawClient(StoreService, connection),
    effects: rawClient(EffectService, connection),
    admin: rawClient(AdminService, connection),
  };
}

function rawClient<S extends DescService>(service: S, connection: Connection): RawClient<S> {
  const client = makeAnyClient(service, (method) => {
    switch (method.methodKind) {
      case "unary":
        return (request: MessageInitShape<DescMessage>, options?: CallOptions) =>
          connection.unary(method, request, options);
      case "server_streaming":
        return (request: MessageInitShape<DescMessage>, options?: CallOptions) =>
          connection.serverStream(method, request, options);
      case "bidi_streaming":
        return (requests: AsyncIterable<MessageInitShape<DescMessage>>, options?: CallOptions) =>
          connection.duplex(method, requests, options);
      default:
        return null;
    }
  });
  // A client created by name has no types of its own; the service's types describe it.
  return client as unknown as RawClient<S>;
}
