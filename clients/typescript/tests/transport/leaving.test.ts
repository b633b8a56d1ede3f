/** A client that leaves a stream which the server has already ended frees the connection. */

import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";

import { afterAll, beforeAll, expect, test } from "vitest";

import { Client } from "../../src/index.js";

/** Types and flags of HTTP/2 frames. */
const [DATA, HEADERS, SETTINGS] = [0, 1, 4];
const [END_STREAM, END_HEADERS] = [1, 4];
const PREFACE_BYTES = 24;

/** Return two empty messages of a stream, and its end. */
function answerOn(stream: number): Buffer {
  return Buffer.concat([
    frame(HEADERS, END_HEADERS, stream, "\x88", field("content-type", "application/grpc")),
    frame(DATA, 0, stream, "\0\0\0\0\0"),
    frame(DATA, 0, stream, "\0\0\0\0\0"),
    frame(HEADERS, END_HEADERS | END_STREAM, stream, field("grpc-status", "0")),
  ]);
}

/** Answers each call with one write, so that a client reads it at once. */
const server = createServer((socket) => {
  socket.write(frame(SETTINGS, 0, 0));
  let received = Buffer.alloc(0);
  const answered = new Set<number>();
  socket.on("data", (bytes) => {
    received = Buffer.concat([received, bytes]);
    for (const stream of endedStreams(received)) {
      if (!answered.has(stream)) {
        answered.add(stream);
        socket.write(answerOn(stream));
      }
    }
  });
});

function frame(type: number, flags: number, stream: number, ...payload: string[]): Buffer {
  const content = Buffer.from(payload.join(""), "latin1");
  const head = Buffer.from([0, 0, content.length, type, flags, 0, 0, 0, stream]);
  return Buffer.concat([head, content]);
}

/** Return a header field as an HPACK literal. */
function field(name: string, value: string): string {
  const [nameSize, valueSize] = [name, value].map((one) => String.fromCharCode(one.length));
  return `\0${nameSize}${name}${valueSize}${value}`;
}

/** Return the streams whose requests the client has sent completely. */
function endedStreams(sent: Buffer): number[] {
  const streams: number[] = [];
  for (let at = PREFACE_BYTES; at + 9 <= sent.length; at += 9 + sent.readUIntBE(at, 3)) {
    if (sent[at + 3] === DATA && sent[at + 4] === END_STREAM) {
      streams.push(sent.readUInt32BE(at + 5));
    }
  }
  return streams;
}

beforeAll(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});

afterAll(() => {
  server.close();
});

test.each([
  ["while it is read", () => undefined],
  ["after it was read", () => new Promise(setImmediate)],
])("%s from the connection", async (_, pause) => {
  const client = new Client(`127.0.0.1:${(server.address() as AddressInfo).port}`);
  const connection: Promise<Socket[]> = once(server, "connection");
  const closed = connection.then(([socket]) => socket && once(socket, "close"));
  let messages = 0;

  for await (const _ of client.raw.checkpoints.listCheckpoints({})) {
    messages += 1;
    await pause();
    break;
  }
  client.close();

  await closed;
  expect(messages).toBe(1);
});
