/** A real server for the tests, on a free port of this machine, in a directory of its own. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { chmodSync } from "node:fs";
import { mkdtemp, open, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { expect, onTestFinished, vi } from "vitest";

import type { TuskPointError } from "../src/index.js";

/** Directory of the server's programs, as `make env` installs them. */
export const BIN = fileURLToPath(new URL("../../../.venv/bin", import.meta.url));

const LISTENING = /^tuskpoint-server listening on (.+)$/;
const HTTP = /^console and JSON over HTTP on (.+)$/;

/** A running server that can be stopped and restarted with the same address and directory. */
export class TestServer {
  readonly #directory: string;
  readonly #flags: readonly string[];
  #target = "";
  #httpUrl = "";
  #process: ChildProcess | undefined;

  private constructor(directory: string, flags: readonly string[]) {
    this.#directory = directory;
    this.#flags = flags;
  }

  /**
   * Start a server.
   *
   * @param flags - Arguments of the server besides its address and directory.
   */
  static async start(...flags: string[]): Promise<TestServer> {
    const directory = await mkdtemp(join(tmpdir(), "tuskpoint-typescript-"));
    const server = new TestServer(directory, flags);
    await server.restart();
    return server;
  }

  /** Address of the server, as `host:port`; the same after a restart. */
  get target(): string {
    return this.#target;
  }

  /** Address of the server's HTTP, if the server was started with `--http-listen`. */
  get httpUrl(): string {
    return this.#httpUrl;
  }

  /** Restart the server with the same address and directory. */
  async restart(): Promise<void> {
    const listen = this.#target === "" ? "127.0.0.1:0" : this.#target;
    const place = ["--listen", listen, "--data-dir", join(this.#directory, "data")];
    // No background flush: only calls of the test certify changes, and watches report only those.
    const pace = ["--flush-interval", "3600"];
    const log = join(this.#directory, "server.log");
    const errors = await open(log, "a");
    const child = spawn(join(BIN, "tuskpoint-server"), [...place, ...pace, ...this.#flags], {
      stdio: ["ignore", "pipe", errors.fd],
    });
    this.#process = child;
    await errors.close();
    for await (const line of child.stdout === null ? [] : createInterface(child.stdout)) {
      this.#target = LISTENING.exec(line)?.[1] ?? this.#target;
      this.#httpUrl = HTTP.exec(line)?.[1] ?? "";
      if (this.#httpUrl !== "" || !this.#flags.includes("--http-listen")) {
        return;
      }
    }
    throw new Error(`tuskpoint-server ended before it listened: ${await readFile(log, "utf8")}`);
  }

  /** End the process, and wait until it has ended. */
  async stop(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    const child = this.#process;
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit");
      child.kill(signal);
      await exited;
    }
  }

  /** Stop the server and remove its directory. */
  async remove(): Promise<void> {
    await this.stop("SIGKILL");
    await rm(this.#directory, { recursive: true, force: true });
  }
}

/** A new token, and its entry in a token file of the server. */
export interface Token {
  readonly token: string;
  readonly entry: string;
}

/** Create a token. */
export function makeToken(name: string, tenant: string, ...scopes: string[]): Token {
  const token = `tusk_${randomBytes(32).toString("base64url")}`;
  const sha256 = createHash("sha256").update(token).digest("hex");
  const fields = { name, sha256, tenant, scopes };
  const lines = Object.entries(fields).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
  return { token, entry: ["[[token]]", ...lines, ""].join("\n") };
}

/** PEM files of an authority, and of the certificates that it issued for this machine. */
export interface Certificates {
  readonly caFile: string;
  readonly certFile: string;
  readonly keyFile: string;
}

/** Create certificates in a directory. */
export function writeCertificates(directory: string): Certificates {
  execFileSync(join(BIN, "python"), ["-m", "trustme", "--quiet", "-d", directory]);
  const keyFile = join(directory, "server.key");
  // A server refuses a key that others can read.
  chmodSync(keyFile, 0o600);
  // "client.pem" is trustme's name for the certificates that clients trust.
  return {
    caFile: join(directory, "client.pem"),
    certFile: join(directory, "server.pem"),
    keyFile,
  };
}

/** Return the ID of a thread that no other test uses. */
export function newThread(): string {
  return `thread-${randomUUID()}`;
}

/** Return the error of a call that fails. */
export async function failure(call: Promise<unknown>): Promise<TuskPointError> {
  return await call.then(
    () => expect.fail("the call succeeded"),
    (error: unknown) => error as TuskPointError,
  );
}

/** Return all items of a stream. */
export async function all<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of stream) {
    items.push(item);
  }
  return items;
}

/** Return the first items of a stream, then leave the stream. */
export async function take<T>(count: number, stream: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of stream) {
    items.push(item);
    if (items.length === count) {
      break;
    }
  }
  return items;
}

/**
 * Stop the clock of deadlines until the test ends; return a function that advances the clock by
 * some milliseconds.
 */
export function holdTime(): (ms: number) => void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  onTestFinished(() => {
    vi.useRealTimers();
  });
  return (ms) => {
    vi.advanceTimersByTime(ms);
  };
}
