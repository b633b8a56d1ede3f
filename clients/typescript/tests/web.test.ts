/** The generated messages with the transports for browsers, over the server's HTTP. */

import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { ErrorInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";
import { CheckpointService } from "../src/gen/tuskpoint/v1/checkpoint_service_pb.js";
import { HistoryService } from "../src/gen/tuskpoint/v1/history_service_pb.js";
import { newThread, TestServer, take } from "./kit.js";

let server: TestServer;

beforeAll(async () => {
  server = await TestServer.start("--http-listen", "127.0.0.1:0");
});

afterAll(async () => {
  await server.remove();
});

const TRANSPORTS = [
  ["Connect, JSON", () => createConnectTransport({ baseUrl: server.httpUrl })],
  [
    "Connect, binary",
    () => createConnectTransport({ baseUrl: server.httpUrl, useBinaryFormat: true }),
  ],
  ["gRPC-Web, binary", () => createGrpcWebTransport({ baseUrl: server.httpUrl })],
  [
    "gRPC-Web, JSON",
    () => createGrpcWebTransport({ baseUrl: server.httpUrl, useBinaryFormat: false }),
  ],
] as const;

function saving(threadId: string, text: string, parentCheckpointId = "") {
  const value = { type: "json", data: new TextEncoder().encode(JSON.stringify(text)) };
  const channel = {
    name: "plan",
    version: { kind: { case: "integer", value: 2n ** 60n } },
    content: { case: "value", value },
  } as const;
  return {
    checkpoint: { ref: { threadId }, parentCheckpointId, state: { channels: [channel] } },
  };
}

describe.each(TRANSPORTS)("%s", (_, transport) => {
  test("saves, loads and watches", async () => {
    const checkpoints = createClient(CheckpointService, transport());
    const threadId = newThread();
    const first = await checkpoints.saveCheckpoint(saving(threadId, "read"));
    const checkpointId = first.ref?.checkpointId ?? "";
    const { checkpoint } = await checkpoints.getCheckpoint({ ref: { threadId, checkpointId } });
    const channel = checkpoint?.state?.channels[0];
    expect(channel?.version?.kind).toEqual({ case: "integer", value: 2n ** 60n });
    expect(channel?.content.case).toBe("value");

    const second = await checkpoints.saveCheckpoint(saving(threadId, "write", checkpointId));
    const events = createClient(HistoryService, transport()).watchThread({ threadId });
    const seen = (await take(2, events)).map(({ frame }) =>
      frame.case === "event" ? frame.value.checkpoint?.ref?.checkpointId : undefined,
    );
    expect(seen).toEqual([checkpointId, second.ref?.checkpointId]);
  });

  test("has the reason of a refusal", async () => {
    const checkpoints = createClient(CheckpointService, transport());
    const ref = { threadId: newThread() };
    const unary = () => checkpoints.getCheckpoint({ ref });
    const stream = () => take(1, checkpoints.loadCheckpoint({ ref }));
    for (const call of [unary, stream]) {
      const error = await call().then(
        () => expect.fail("the call succeeded"),
        (thrown: unknown) => ConnectError.from(thrown),
      );
      expect(error.code).toBe(Code.NotFound);
      const [info] = error.findDetails(ErrorInfoSchema);
      expect(info?.reason).toBe("CHECKPOINT_NOT_FOUND");
      expect(info?.domain).toBe("tuskpoint.dev");
    }
  });

  test("keeps to its deadline", async () => {
    const history = createClient(HistoryService, transport());
    const threadId = newThread();
    await createClient(CheckpointService, transport()).saveCheckpoint(saving(threadId, "read"));
    const watching = take(2, history.watchThread({ threadId }, { timeoutMs: 300 }));
    await expect(watching).rejects.toMatchObject({ code: Code.DeadlineExceeded });
  });
});

test("the example follows a thread, and shows why it may not", async () => {
  const { follow } = await import("../examples/browser.js" as string);
  const checkpoints = createClient(CheckpointService, TRANSPORTS[0][1]());
  const threadId = newThread();
  const saved = await checkpoints.saveCheckpoint(saving(threadId, "read"));
  const shown: string[] = [];
  const leaving = new AbortController();
  const show = (line: string) => {
    shown.push(line);
    leaving.abort();
  };
  const baseUrl = server.httpUrl;
  await follow({ baseUrl, token: "", threadId, show, signal: leaving.signal });
  expect(shown[0]).toBe(`1: ${saved.ref?.checkpointId}`);
  await follow({ baseUrl, token: "unasked", threadId: "none", show });
  expect(shown.at(-1)).toMatch(/^THREAD_NOT_FOUND: /);
});
