/**
 * Runs the steps of interop scenarios with this client: see `tests/interop/scenarios/README.md`.
 */

import {
  createRegistry,
  fromJson,
  toJson,
  type DescMessage,
  type DescMethod,
  type DescMethodBiDiStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type MessageShape,
} from "@bufbuild/protobuf";

import { Connection } from "../src/transport/connection.js";
import { file_tuskpoint_v1_admin_service } from "../src/gen/tuskpoint/v1/admin_service_pb.js";
import { file_tuskpoint_v1_checkpoint_service } from "../src/gen/tuskpoint/v1/checkpoint_service_pb.js";
import { file_tuskpoint_v1_handoff_service } from "../src/gen/tuskpoint/v1/handoff_service_pb.js";
import { file_tuskpoint_v1_history_service } from "../src/gen/tuskpoint/v1/history_service_pb.js";
import { file_tuskpoint_v1_search_service } from "../src/gen/tuskpoint/v1/search_service_pb.js";
import { file_tuskpoint_v1_snapshot_service } from "../src/gen/tuskpoint/v1/snapshot_service_pb.js";
import { file_tuskpoint_v1_thread_service } from "../src/gen/tuskpoint/v1/thread_service_pb.js";
import { Client, type ConnectionOptions } from "../src/index.js";
import type { Json } from "../src/messages/json.js";
import { ACTIONS } from "./actions.js";

const REGISTRY = createRegistry(
  file_tuskpoint_v1_admin_service,
  file_tuskpoint_v1_checkpoint_service,
  file_tuskpoint_v1_handoff_service,
  file_tuskpoint_v1_history_service,
  file_tuskpoint_v1_search_service,
  file_tuskpoint_v1_snapshot_service,
  file_tuskpoint_v1_thread_service,
);
const NOBODY = "nobody";
const DEADLINE_MS = 60_000;

/** The addresses and credentials of the servers that scenarios use. */
export interface World {
  /** Name of the client that runs the scenarios. */
  readonly client: string;
  /** Address of the server with TLS. */
  readonly target: string;
  /**
   * Certificate of the authority that signed the server's certificate; empty: the server has no
   * TLS.
   */
  readonly ca_file: string;
  /** Token of each identity. */
  readonly tokens: Readonly<Record<string, string>>;
  /** An address where nothing listens. */
  readonly dead_target: string;
}

/** One step of a scenario, its values filled in. */
export interface Step {
  readonly rpc?: string;
  readonly request?: Json;
  readonly requests?: Json[];
  readonly take?: number;
  readonly deadline_ms?: number;
  readonly do?: string;
  readonly with?: Record<string, Json>;
  readonly as?: string;
  readonly expect?: Json;
  readonly expect_error?: Json;
  readonly bind?: Record<string, string>;
}

/** Makes the calls of the steps. */
export class Player {
  readonly world: World;
  readonly #clients = new Map<string, Client>();
  readonly #connections = new Map<string, Connection>();

  /** @param world - The addresses and credentials of the servers. */
  constructor(world: World) {
    this.world = world;
  }

  /** Close all connections. */
  close(): void {
    for (const connection of [...this.#clients.values(), ...this.#connections.values()]) {
      connection.close();
    }
  }

  /** Make the call of a step; return its result as JSON. */
  async play(step: Step): Promise<Json> {
    const identity = step.as ?? "writer";
    return step.rpc === undefined
      ? await this.#do(step, identity)
      : await this.#rpc(step.rpc, step, identity);
  }

  async #do(step: Step, identity: string): Promise<Json> {
    const action = ACTIONS[step.do ?? ""];
    if (action === undefined) {
      throw new Error(`there is no action ${step.do}`);
    }
    const client = remembered(this.#clients, identity, () => new Client(this.#options(identity)));
    return await action(client, step.with ?? {}, this.world);
  }

  async #rpc(path: string, step: Step, identity: string): Promise<Json> {
    const connection = remembered(
      this.#connections,
      identity,
      () => new Connection(this.#options(identity)),
    );
    const method = methodOf(path);
    const given = step.requests ?? [step.request ?? {}];
    const requests = given.map((one) => fromJson(method.input, one, { registry: REGISTRY }));
    const options = { timeoutMs: step.deadline_ms ?? DEADLINE_MS };
    if (isUnary(method)) {
      return shown(method, await connection.unary(method, requests[0] ?? {}, options));
    }
    if (isServerStreaming(method)) {
      const answers = connection.serverStream(method, requests[0] ?? {}, options);
      return await taken(method, answers, step.take);
    }
    if (isBiDiStreaming(method)) {
      const answers = connection.duplex(method, stream(requests), options);
      return await taken(method, answers, step.take);
    }
    throw new Error(`no call of the contract is like ${path}`);
  }

  #options(identity: string): ConnectionOptions {
    const { target, ca_file: caFile, tokens } = this.world;
    return {
      target,
      ...(caFile === "" ? { tls: false } : { caFile }),
      ...(identity === NOBODY ? {} : { token: tokens[identity] }),
    };
  }
}

function methodOf(path: string): DescMethod {
  const [service = "", name = ""] = path.split("/");
  const method = REGISTRY.getService(`tuskpoint.v1.${service}`)?.methods.find(
    (one) => one.name === name,
  );
  if (method === undefined) {
    throw new Error(`the contract has no ${path}`);
  }
  return method;
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === "unary";
}

function isServerStreaming(method: DescMethod): method is DescMethodServerStreaming {
  return method.methodKind === "server_streaming";
}

function isBiDiStreaming(method: DescMethod): method is DescMethodBiDiStreaming {
  return method.methodKind === "bidi_streaming";
}

async function taken(
  method: DescMethod,
  answers: AsyncIterable<MessageShape<DescMessage>>,
  most = Number.POSITIVE_INFINITY,
): Promise<Json[]> {
  const results: Json[] = [];
  for await (const answer of answers) {
    results.push(shown(method, answer));
    if (results.length >= most) {
      break;
    }
  }
  return results;
}

function shown(method: DescMethod, answer: MessageShape<DescMessage>): Json {
  return toJson(method.output, answer, { useProtoFieldName: true, registry: REGISTRY }) as Json;
}

async function* stream<T>(items: readonly T[]): AsyncGenerator<T, void, undefined> {
  yield* items;
}

function remembered<T>(known: Map<string, T>, key: string, make: () => T): T {
  const value = known.get(key) ?? make();
  known.set(key, value);
  return value;
}
