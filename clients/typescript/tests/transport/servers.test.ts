/**
 * Calls and streams are spread over the servers of a target, and continue after the loss of a
 * server.
 */

import { lookup } from "node:dns/promises";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSecureContext } from "node:tls";

import { afterEach, expect, onTestFinished, test, vi } from "vitest";

import { AdminService } from "../../src/gen/tuskpoint/v1/admin_service_pb.js";
import { CheckpointService } from "../../src/gen/tuskpoint/v1/checkpoint_service_pb.js";
import { EventKind, HistoryService } from "../../src/gen/tuskpoint/v1/history_service_pb.js";
import { Client, type ConnectionOptions } from "../../src/index.js";
import { Sessions } from "../../src/transport/sessions.js";
import { holdTime, writeCertificates } from "../kit.js";
import { scripted, type ScriptedServer } from "./scripted.js";
import { nameOf, ScriptedExchange } from "./scripted-exchange.js";

vi.mock("node:dns/promises");

afterEach(() => {
  vi.restoreAllMocks();
});

type Start = Parameters<typeof scripted>;

async function serving(...how: Start): Promise<ScriptedServer> {
  const server = await scripted(...how);
  onTestFinished(server.close);
  return server;
}

/** Start a server that answers with the given version. */
async function ofVersion(
  version: string,
  ...where: Start extends [unknown, ...infer R] ? R : never
) {
  const info = { getServerInfo: () => ({ version }) };
  return await serving((router) => router.service(AdminService, info), ...where);
}

/** Return the address of a server that a test starts later. */
async function later(): Promise<string> {
  const server = await scripted(() => undefined);
  await server.close();
  return server.target;
}

function calling(target: string, options: ConnectionOptions = {}): Client {
  const client = new Client({ target, ...options });
  onTestFinished(() => client.close());
  return client;
}

/**
 * Call until as many consecutive calls as there are expected servers were answered by all of them.
 */
async function takeTurns(client: Client, ...expected: string[]): Promise<void> {
  const found: string[] = [];
  const last = () => found.slice(-expected.length).sort();
  while (last().join() !== expected.join()) {
    found.push((await client.info()).version);
  }
}

/** Return a server certificate, its key, and the file of the CA. */
function secured(): { caFile: string; cert: Buffer; key: Buffer } {
  const directory = mkdtempSync(join(tmpdir(), "tuskpoint-typescript-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const { caFile, certFile, keyFile } = writeCertificates(directory);
  return { caFile, cert: readFileSync(certFile), key: readFileSync(keyFile) };
}

/** Make each name resolve to the given addresses. */
function name(...addresses: string[]): void {
  const found = addresses.map((address) => ({ address, family: 4 }));
  vi.mocked(lookup as (...given: unknown[]) => Promise<unknown>).mockResolvedValue(found);
}

test("servers take turns, except one that is gone until it is back", async () => {
  const [first, second] = [await ofVersion("1"), await ofVersion("2")];
  const client = calling(`${first.target},${second.target}`);
  await takeTurns(client, "1", "2");
  await second.close();
  await takeTurns(client, "1", "1");
  const tried = vi.spyOn(Sessions.prototype, "request");
  await takeTurns(client, "1", "1", "1", "1");
  expect(tried).toHaveBeenCalledTimes(4);
  await ofVersion("3", second.target);
  await takeTurns(client, "1", "3");
});

test("the addresses of a name take turns, as it has them", async () => {
  const first = await ofVersion("1");
  const [, port] = first.target.split(":");
  const second = await ofVersion("2", `127.0.0.2:${port}`);
  await ofVersion("3", `127.0.0.3:${port}`);
  name("127.0.0.1", "127.0.0.2");
  const client = calling(`dns:///agents.example:${port}`);
  await takeTurns(client, "1", "2");
  name("127.0.0.1", "127.0.0.3");
  await second.close();
  await takeTurns(client, "1", "3");
});

test("a certificate is checked for the name, not for its address", async () => {
  const { caFile, cert, key } = secured();
  const context = createSecureContext({ cert, key });
  const names: string[] = [];
  const server = await ofVersion("1", "127.0.0.1:0", {
    SNICallback: (asked, callback) => {
      names.push(asked);
      callback(null, context);
    },
  });
  name("127.0.0.1");
  const client = calling(server.target.replace("127.0.0.1", "dns:///localhost"), { caFile });
  await client.info();
  expect(names).toEqual(["localhost"]);
});

test("a call waits no longer than 5 seconds for a server that accepts no connection", async () => {
  const { caFile, ...pair } = secured();
  const silent = createServer();
  silent.listen(0, "127.0.0.1");
  await once(silent, "listening");
  onTestFinished(() => void silent.close());
  const { port } = silent.address() as AddressInfo;
  const other = await ofVersion("2", "127.0.0.1:0", pair);
  vi.spyOn(Math, "random").mockReturnValue(0);
  const client = calling(`127.0.0.1:${port},${other.target}`, { caFile });
  const pass = holdTime();
  const called = client.info();
  await once(silent, "connection"); // The TLS handshake never starts.
  pass(5_000);
  expect((await called).version).toBe("2");
});

test("a watch continues on another server after its last event", async () => {
  const cursors: string[] = [];
  const watching = (...numbers: number[]) => {
    return async function* ({ cursor }: { cursor: Uint8Array }) {
      cursors.push(Buffer.from(cursor).toString());
      for (const number of numbers) {
        const seq = BigInt(number);
        const event = { kind: EventKind.LABEL_SET, seq, cursor: Buffer.from(`c${number}`) };
        yield { frame: { case: "event" as const, value: event } };
      }
      await new Promise(() => undefined);
    };
  };
  const first = await serving((router) =>
    router.service(HistoryService, { watchThread: watching(1, 2) }),
  );
  const second = await later();
  const watch = calling(`${first.target},${second}`).watch("t");
  const seen = [await watch.next(), await watch.next()];
  await serving((router) => router.service(HistoryService, { watchThread: watching(3) }), second);
  await first.close();
  seen.push(await watch.next());
  expect(seen.map((one) => one.value?.seq)).toEqual([1n, 2n, 3n]);
  expect(cursors).toEqual(["", "c2"]);
});

test("a save without an answer is sent again to another server", async () => {
  const [before, after] = [new ScriptedExchange(), new ScriptedExchange()];
  const serve = (exchange: ScriptedExchange, ...where: string[]) =>
    serving(
      (router) => router.service(CheckpointService, { exchange: exchange.exchange }),
      ...where,
    );
  const first = await serve(before);
  const second = await later();
  const client = calling(`${first.target},${second}`);
  const saved = client.save("t", { a: 1 }, { parentId: "" });
  const stream = await before.opened(0);
  const [sent] = await stream.received(1);
  await serve(after, second);
  await first.close();
  const next = await after.opened(0);
  const again = await next.received(1);
  expect(again.map(nameOf)).toEqual([nameOf(sent)]);
  expect(next.messages[0]?.hello?.session).toEqual(stream.messages[0]?.hello?.session);
  next.save(...again);
  await saved;
});
