/**
 * Which calls are sent again, how often and with what content, against a server with scripted
 * failures.
 */

import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Code, ConnectError } from "@connectrpc/connect";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { afterEach, expect, test, vi } from "vitest";

import { ErrorInfoSchema, RetryInfoSchema } from "../../src/gen/google/rpc/error_details_pb.js";
import { AdminService } from "../../src/gen/tuskpoint/v1/admin_service_pb.js";
import { CheckpointService } from "../../src/gen/tuskpoint/v1/checkpoint_service_pb.js";
import { ErrorReason } from "../../src/gen/tuskpoint/v1/errors_pb.js";
import { AdoptStage, HandoffService } from "../../src/gen/tuskpoint/v1/handoff_service_pb.js";
import { HistoryService } from "../../src/gen/tuskpoint/v1/history_service_pb.js";
import { ThreadService } from "../../src/gen/tuskpoint/v1/thread_service_pb.js";
import {
  Client,
  Conflict,
  DeadlineExceeded,
  InvalidRequest,
  ResourceExhausted,
  ServerError,
  Unauthenticated,
  Unavailable,
} from "../../src/index.js";
import { all, holdTime, take } from "../kit.js";
import { scripted, type ScriptedServer } from "./scripted.js";
import { answering } from "./scripted-exchange.js";

const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) {
    await cleanup();
  }
});

/** Start a scripted server and a client of the server. */
async function facing(
  routes: Parameters<typeof scripted>[0],
): Promise<{ client: Client; server: ScriptedServer }> {
  const server = await scripted(routes);
  const client = new Client({ target: server.target, timeoutMs: 10_000 });
  cleanups.push(server.close, () => client.close());
  return { client, server };
}

/** Return an error in the form in which the service sends it. */
function refusal(code: Code, reason: string, retryAfterMs?: number): ConnectError {
  const info = { desc: ErrorInfoSchema, value: { reason, domain: "tuskpoint.dev" } };
  const retry = { desc: RetryInfoSchema, value: { retryDelay: durationFromMs(retryAfterMs ?? 0) } };
  const details = retryAfterMs === undefined ? [info] : [info, retry];
  return new ConnectError("as the test wants it", code, undefined, details);
}

/**
 * Return an info handler that fails with the given errors, one after the other, and then answers.
 */
function failing(...failures: ConnectError[]): { calls: number; info: () => { version: string } } {
  const counted = {
    calls: 0,
    info: () => {
      const failure = failures[counted.calls];
      counted.calls += 1;
      if (failure !== undefined) {
        throw failure;
      }
      return { version: "scripted" };
    },
  };
  return counted;
}

test("a call is sent again as long as the server is unavailable", async () => {
  const unavailable = new ConnectError("gone", Code.Unavailable);
  const cancelled = new ConnectError("dropped", Code.Canceled);
  const handler = failing(unavailable, cancelled, refusal(Code.Unavailable, "DRAINING", 1));
  const { client } = await facing((router) =>
    router.service(AdminService, { getServerInfo: handler.info }),
  );

  expect((await client.info()).version).toBe("scripted");
  expect(handler.calls).toBe(4);
});

test("a pause that the server asks for is waited for, if there is time", async () => {
  const handler = failing(refusal(Code.ResourceExhausted, "BACKLOG_FULL", 250));
  const { client } = await facing((router) =>
    router.service(AdminService, { getServerInfo: handler.info }),
  );
  const begun = performance.now();
  await client.info();
  expect(performance.now() - begun).toBeGreaterThanOrEqual(250);

  const patient = failing(refusal(Code.Unavailable, "DRAINING", 60_000));
  const hurried = await facing((router) =>
    router.service(AdminService, { getServerInfo: patient.info }),
  );
  const error = await hurried.client.info().catch((one: unknown) => one);
  expect(error).toBeInstanceOf(Unavailable);
  expect(error).toMatchObject({ reason: "DRAINING", retryAfterMs: 60_000 });
  expect(patient.calls).toBe(1);
});

test.each([
  ["a decision", refusal(Code.Aborted, "HEAD_MOVED"), Conflict],
  ["less", refusal(Code.ResourceExhausted, "LIMIT_EXCEEDED"), ResourceExhausted],
  ["more time", refusal(Code.DeadlineExceeded, "DEADLINE_EXCEEDED"), DeadlineExceeded],
  ["a report", refusal(Code.Internal, "INTERNAL_ERROR"), ServerError],
])("what needs %s is not sent again", async (_, failure, kind) => {
  const handler = failing(failure, failure);
  const { client } = await facing((router) =>
    router.service(AdminService, { getServerInfo: handler.info }),
  );

  await expect(client.info()).rejects.toThrow(kind);
  expect(handler.calls).toBe(1);
});

test("retries end with the deadline of the call", async () => {
  const pass = holdTime();
  const handler = failing(
    ...Array.from({ length: 99 }, () => new ConnectError("", Code.Unavailable)),
  );
  const getServerInfo = () => {
    pass(200);
    return handler.info();
  };
  const { client } = await facing((router) => router.service(AdminService, { getServerInfo }));

  await expect(client.info({ timeoutMs: 500 })).rejects.toThrow(Unavailable);
  expect(handler.calls).toBeGreaterThan(1);
  expect(handler.calls).toBeLessThan(99);
});

test("a call that hangs after a failure fails with the failure", async () => {
  const pass = holdTime();
  let calls = 0;
  const { client } = await facing((router) =>
    router.service(AdminService, {
      getServerInfo: async (_, { signal }) => {
        calls += 1;
        if (calls > 1) {
          setImmediate(() => pass(1_000));
          await once(signal, "abort");
        }
        throw refusal(Code.Unavailable, "DRAINING");
      },
    }),
  );

  await expect(client.info({ timeoutMs: 1_000 })).rejects.toMatchObject({ reason: "DRAINING" });
  expect(calls).toBe(2);
});

test("a signal ends the wait for the next attempt", async () => {
  const controller = new AbortController();
  const handler = failing(refusal(Code.Unavailable, "DRAINING", 5_000));
  const { client } = await facing((router) =>
    router.service(AdminService, {
      getServerInfo: () => {
        setImmediate(() => controller.abort(new Error("enough")));
        return handler.info();
      },
    }),
  );

  await expect(client.info({ signal: controller.signal })).rejects.toThrow("enough");
  expect(handler.calls).toBe(1);
});

test("a save without an ID is sent again only if nothing was stored", async () => {
  const failures = [
    refusal(Code.Unavailable, "DRAINING"),
    new ConnectError("gone", Code.Unavailable),
  ];
  let requests = 0;
  const { client } = await facing((router) =>
    router.service(CheckpointService, {
      saveCheckpoint: () => {
        requests += 1;
        throw failures[requests - 1] ?? new Error("there was one request too many");
      },
    }),
  );

  const nameless = client.raw.checkpoints.saveCheckpoint({
    checkpoint: { ref: { threadId: "t" } },
  });
  await expect(nameless).rejects.toThrow(Unavailable);
  expect(requests).toBe(2);
});

test("a mutation carries one request ID through all its attempts", async () => {
  const ids: string[] = [];
  const { client } = await facing((router) =>
    router.service(ThreadService, {
      forkThread: ({ requestId }) => {
        ids.push(requestId);
        if (ids.length < 3) {
          throw new ConnectError("gone", Code.Unavailable);
        }
        return { ref: { threadId: "new" } };
      },
    }),
  );

  await client.fork("t");
  const request = { ref: { threadId: "t" }, requestId: "" };
  await client.raw.threads.forkThread(request);

  expect(ids).toHaveLength(4);
  expect(new Set(ids.slice(0, 3)).size).toBe(1);
  expect(ids[0]).toMatch(/^[0-9a-f-]{36}$/);
  expect(ids[3]).not.toBe(ids[0]);
  expect(request.requestId).toBe("");
});

test("content that the server lost is sent inline, at last all of it", async () => {
  const inline: (string | undefined)[][] = [];
  const { client } = await facing((router) =>
    router.service(CheckpointService, {
      exchange: answering((call) => {
        const checkpoint = call.case === "save" ? call.value.checkpoint : undefined;
        const channels = checkpoint?.state?.channels ?? [];
        inline.push(channels.filter((one) => one.content.case === "value").map((one) => one.name));
        if (inline.length === 2 || inline.length === 3) {
          const error = { code: Code.FailedPrecondition, reason: ErrorReason.VALUES_MISSING };
          return { case: "error", value: error };
        }
        return { case: "saved", value: { seq: 1n, durability: 1 } };
      }),
    }),
  );
  await client.save("t", { a: 1, b: 2 }, { parentId: "" });
  await client.save("t", { a: 1, b: 3 });

  expect(inline).toEqual([["a", "b"], ["b"], ["b"], ["a", "b"]]);
});

test("a call whose token was replaced meanwhile is made again with the new one", async () => {
  const directory = mkdtempSync(join(tmpdir(), "tuskpoint-typescript-"));
  const path = join(directory, "token");
  writeFileSync(path, "old");
  vi.stubEnv("TUSKPOINT_TOKEN_FILE", path);
  cleanups.push(() => rmSync(directory, { recursive: true }), vi.unstubAllEnvs);
  const shown: (string | null)[] = [];
  const { client } = await facing((router) =>
    router.service(AdminService, {
      getServerInfo: (_, { requestHeader }) => {
        shown.push(requestHeader.get("authorization"));
        writeFileSync(path, "new");
        throw refusal(Code.Unauthenticated, "CREDENTIAL_INVALID");
      },
    }),
  );

  await expect(client.info()).rejects.toThrow(Unauthenticated);
  expect(shown).toEqual(["Bearer old", "Bearer new"]);
});

test("a request that cannot be written is not sent again", async () => {
  const { client } = await facing((router) =>
    router
      .service(ThreadService, { deleteThread: () => ({}) })
      .service(HistoryService, { async *replayThread() {} }),
  );
  const { threads, history } = client.raw;
  const call = threads.deleteThread({ durability: "x" as never });
  await expect(call).rejects.toThrow(InvalidRequest);
  const stream = history.replayThread({ view: "x" as never });
  await expect(all(stream)).rejects.toThrow(InvalidRequest);
});

test("a stream that broke after its first answer is not restarted by the raw calls", async () => {
  let calls = 0;
  const { client } = await facing((router) =>
    router.service(CheckpointService, {
      async *listCheckpoints() {
        calls += 1;
        if (calls > 1) {
          yield { frame: { case: "checkpoint", value: {} } };
        }
        throw new ConnectError("gone", Code.Unavailable);
      },
    }),
  );

  await expect(all(client.list("t"))).rejects.toThrow(Unavailable);
  expect(calls).toBe(2);
});

test("a watch continues after its last cursor when its connection is cut", async () => {
  const cursors: number[][] = [];
  const { client, server } = await facing((router) =>
    router.service(HistoryService, {
      async *watchThread({ cursor }) {
        cursors.push([...cursor]);
        const at = cursor[0] ?? 0;
        yield { frame: { case: "event", value: { kind: 1, cursor: Uint8Array.of(at + 1) } } };
        if (cursors.length === 1) {
          // A checkpoint that never arrives whole is not delivered, and its cursor is not used.
          const channels = [{ content: { case: "large" as const, value: { sizeBytes: 9n } } }];
          const value = { kind: 1, cursor: Uint8Array.of(99), checkpoint: { state: { channels } } };
          yield { frame: { case: "event", value } };
          server.cut();
        }
      },
    }),
  );

  const events = await take(3, client.watch("t"));

  expect(events.map((one) => [...one.cursor])).toEqual([[1], [2], [3]]);
  expect(cursors).toEqual([[], [1], [2]]);
});

test("an adoption that breaks off continues with the same request, and reports no stage twice", async () => {
  const ids: string[] = [];
  const { client } = await facing((router) =>
    router.service(HandoffService, {
      async *adoptHandoff({ requestId }) {
        ids.push(requestId);
        yield { stage: AdoptStage.FETCHING, fetchedBytes: 5n };
        yield { stage: AdoptStage.FETCHED, fetchedBytes: 9n };
        if (ids.length === 1) {
          throw refusal(Code.Unavailable, "BLOB_UNAVAILABLE", 1);
        }
        yield { stage: AdoptStage.VERIFIED, fetchedBytes: 9n };
        yield { stage: AdoptStage.ADOPTED, fetchedBytes: 9n, adoption: { verified: true } };
      },
    }),
  );
  const stages: string[] = [];
  const descriptor = {
    source: "t:c",
    thread_id: "t",
    checkpoint_id: "c",
    blob_id: "b",
    blob_sha256: "0".repeat(64),
    to_agent: "",
    summary: "",
  };

  await client.adopt(descriptor, "t2", { onProgress: ({ stage }) => stages.push(stage) });

  expect(stages).toEqual(["fetching", "fetched", "verified", "adopted"]);
  expect(ids).toHaveLength(2);
  expect(new Set(ids).size).toBe(1);
});

test("an adoption whose hash was not checked is none", async () => {
  const { client } = await facing((router) =>
    router.service(HandoffService, {
      async *adoptHandoff() {
        yield { stage: AdoptStage.ADOPTED, adoption: { verified: false } };
      },
    }),
  );
  const id = { thread_id: "t", checkpoint_id: "c", source: "t:c" };
  const blob = { blob_id: "b", blob_sha256: "0".repeat(64), to_agent: "", summary: "" };

  await expect(client.adopt({ ...id, ...blob })).rejects.toThrow(ServerError);
});

test("warnings are emitted by the process, each kind once", async () => {
  const warnings: string[] = [];
  const listen = (warning: Error) => warnings.push(`${warning.name}: ${warning.message}`);
  process.on("warning", listen);
  cleanups.push(() => process.off("warning", listen));
  const { client, server } = await facing((router) =>
    router.service(CheckpointService, {
      exchange: answering(() => ({
        case: "saved",
        value: { durability: 1, warnings: [{ kind: 1, message: "the backlog grows" }] },
      })),
    }),
  );

  await client.save("t", {}, { parentId: "" });
  await client.save("t", {}, { parentId: "" });
  await new Promise(setImmediate);

  expect(warnings).toEqual([
    `TuskPointWarning: ${server.target} warns (backlog): the backlog grows`,
  ]);
});
