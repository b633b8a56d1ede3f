/** TLS and tokens, against a real server that requires both. */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";

import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";

import {
  Client,
  PermissionDenied,
  Unauthenticated,
  Unavailable,
  type ConnectionOptions,
} from "../../src/index.js";
import { makeToken, TestServer, writeCertificates } from "../kit.js";

const directory = mkdtempSync(join(tmpdir(), "tuskpoint-typescript-"));
const { caFile, certFile, keyFile } = writeCertificates(directory);
const tokens = join(directory, "tokens.toml");
const clients: Client[] = [];
const { token: writer, entry: writerEntry } = makeToken("writer", "default", "read", "write");
const { token: reader, entry: readerEntry } = makeToken("reader", "default", "read");
let server: TestServer;

beforeAll(async () => {
  writeFileSync(tokens, writerEntry + readerEntry);
  server = await TestServer.start(
    ...["--tls-cert", certFile, "--tls-key", keyFile, "--tls-client-ca", caFile],
    ...["--tokens", tokens],
  );
});

afterEach(() => {
  vi.unstubAllEnvs();
  for (const client of clients.splice(0)) {
    client.close();
  }
});

afterAll(async () => {
  await server.remove();
  rmSync(directory, { recursive: true });
});

/** Return a client of the server that is closed after the test. */
function client(options: ConnectionOptions): Client {
  const files = { caFile, certFile, keyFile };
  const made = new Client({ target: server.target, ...files, ...options });
  clients.push(made);
  return made;
}

test("a token decides what may be done", async () => {
  const thread = "secured";
  await client({ token: writer }).save(thread, { a: 1 });
  const reading = client({ token: reader });

  expect((await reading.load(thread)).state).toEqual({ a: 1 });
  const denied = await reading.save(thread, { a: 2 }).catch((error: unknown) => error);
  expect(denied).toBeInstanceOf(PermissionDenied);
  expect(denied).toMatchObject({ reason: "SCOPE_MISSING", metadata: { scope: "write" } });
  // A large save is refused before its chunks are sent.
  const large = reading.save(thread, { a: "x".repeat(5_000_000) }, { parentId: "" });
  await expect(large).rejects.toThrow(PermissionDenied);
});

test("without a known token nothing may be done, and errors do not contain it", async () => {
  for (const token of [undefined, "tusk_unknown"]) {
    const error = await client({ token })
      .info()
      .catch((one: unknown) => one);
    expect(error).toBeInstanceOf(Unauthenticated);
    expect(error).toMatchObject({ reason: "CREDENTIAL_INVALID", status: "UNAUTHENTICATED" });
    expect(inspect(error, { depth: 9, showHidden: true })).not.toContain("tusk_");
  }
});

test("all of it can come from the environment", async () => {
  vi.stubEnv("TUSKPOINT_TARGET", server.target);
  vi.stubEnv("TUSKPOINT_CA_FILE", caFile);
  vi.stubEnv("TUSKPOINT_CERT_FILE", certFile);
  vi.stubEnv("TUSKPOINT_KEY_FILE", keyFile);
  vi.stubEnv("TUSKPOINT_TOKEN", reader);
  const made = new Client();
  clients.push(made);

  expect(made.target).toBe(server.target);
  expect((await made.info()).version).toBe(readVersion());
});

test.each([
  ["the server's certificate is not trusted", { caFile: undefined, tls: true }],
  [
    "the server does not know the client's certificate",
    { certFile: undefined, keyFile: undefined },
  ],
  ["the client speaks plaintext", { ...noFiles(), tls: false }],
])("where %s the server is Unavailable", async (_, options) => {
  await expect(client({ token: writer, ...options }).info({ timeoutMs: 3_000 })).rejects.toThrow(
    Unavailable,
  );
});

test("a certificate that is not trusted is reported at once, with what to do", async () => {
  const stranger = client({ token: writer, caFile: undefined, tls: true, timeoutMs: 60_000 });
  await expect(stranger.info()).rejects.toThrow("TUSKPOINT_CA_FILE");
});

function noFiles(): ConnectionOptions {
  return { caFile: undefined, certFile: undefined, keyFile: undefined };
}

function readVersion(): string {
  const manifest = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(manifest) as { version: string }).version;
}
