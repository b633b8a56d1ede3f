/** A client's calls on the streams of a scripted server. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { type Code, ConnectError } from "@connectrpc/connect";
import { onTestFinished, vi } from "vitest";

import { ErrorInfoSchema } from "../../../src/gen/google/rpc/error_details_pb.js";
import { AdminService } from "../../../src/gen/tuskpoint/v1/admin_service_pb.js";
import { Durability } from "../../../src/gen/tuskpoint/v1/checkpoint_pb.js";
import {
  CheckpointService,
  type SaveCheckpointResponse,
} from "../../../src/gen/tuskpoint/v1/checkpoint_service_pb.js";
import { Calls } from "../../../src/transport/calls.js";
import { type CallOptions, Connection } from "../../../src/transport/connection.js";
import { scripted, type ScriptedServer } from "../scripted.js";
import { ScriptedExchange } from "../scripted-exchange.js";

export const MIB = 1024 * 1024;

/** A scripted server, and calls to the server. */
export interface Faced {
  readonly calls: Calls;
  readonly server: ScriptedServer;
  readonly exchange: ScriptedExchange;
  /** Save a checkpoint with an ID that the test knows. */
  readonly save: (name: string, more?: SaveMore) => Promise<SaveCheckpointResponse>;
  /**
   * Wait until the server has read everything sent so far: calls of one connection arrive in order.
   */
  readonly settled: () => Promise<void>;
}

interface SaveMore extends CallOptions {
  readonly threadId?: string;
  readonly bytes?: number;
  readonly durability?: Durability;
}

/** Start a scripted server and a client of the server. */
export async function facing(): Promise<Faced> {
  const exchange = new ScriptedExchange();
  const server = await scripted((router) => {
    router.service(CheckpointService, { exchange: exchange.exchange });
    router.service(AdminService, { getServerInfo: () => ({}) });
  });
  const connection = new Connection({ target: server.target });
  const calls = new Calls(connection);
  onTestFinished(() => connection.close());
  onTestFinished(server.close);
  const save = (
    name: string,
    { threadId = name, bytes = 1, durability, ...options }: SaveMore = {},
  ) =>
    calls.saveCheckpoint(
      {
        checkpoint: {
          ref: { threadId, checkpointId: name },
          state: { channels: [{ name: "a", content: { case: "value", value: contentOf(bytes) } }] },
        },
        durability: durability ?? Durability.JOURNALED,
      },
      options,
    );
  const settled = async () => {
    await connection.raw.admin.getServerInfo({});
  };
  return { calls, server, exchange, save, settled };
}

/** Return a value of the given size. */
export function contentOf(bytes: number): { type: string; data: Uint8Array } {
  return { type: "json", data: Buffer.alloc(bytes, "1") };
}

/** Return an error with which the service ends a stream. */
export function ending(code: Code, reason: string): ConnectError {
  const info = { desc: ErrorInfoSchema, value: { reason, domain: "tuskpoint.dev" } };
  return new ConnectError("as the test wants it", code, undefined, [info]);
}

/**
 * Make clients read their token from a file; return a function that replaces the token in the file.
 */
export function tokenFile(token: string): (token: string) => void {
  const directory = mkdtempSync(join(tmpdir(), "tuskpoint-typescript-"));
  const path = join(directory, "token");
  writeFileSync(path, token);
  vi.stubEnv("TUSKPOINT_TOKEN_FILE", path);
  onTestFinished(() => {
    vi.unstubAllEnvs();
    rmSync(directory, { recursive: true });
  });
  return (next) => writeFileSync(path, next);
}
