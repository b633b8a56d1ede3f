/** The servers of a target: chooses the server of each call, and leaves unreachable servers out. */

import { lookup } from "node:dns/promises";
import type { ClientHttp2Stream, SecureClientSessionOptions } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";

import type { GrpcTransportOptions } from "@connectrpc/connect-node";

import { Sessions } from "./sessions.js";
import { openSocket } from "./socket.js";
import { addressesOf, hostOf, nameOf } from "./target.js";

type SessionManager = NonNullable<GrpcTransportOptions["sessionManager"]>;

/** Milliseconds between two attempts to reach a server again. */
const PAUSE_MS = 1_000;

interface Server {
  readonly sessions: Sessions;
  isGone: boolean;
}

/**
 * Distributes calls over servers in turn. A server that accepts no connection is left out until it
 * does; its call, which was not sent at all, goes to the next server.
 */
export class Servers {
  /** The origin of all transports, whichever server a call goes to. */
  readonly authority: string;
  readonly #tls: SecureClientSessionOptions | undefined;
  /** The DNS name that resolves to the servers, with its port. */
  readonly #name: string | undefined;
  readonly #hasOthers: boolean;
  /** By address; until the name is resolved, by the name. */
  readonly #servers = new Map<string, Server>();
  #lookedUp: Promise<void> | undefined;
  /** Random, so that processes which start together use different servers first. */
  #turn = Math.floor(Math.random() * 1_000_000);
  #isClosed = false;

  /**
   * @param target - Addresses of the servers, normalized.
   * @param tls - Options of TLS; `undefined` means plaintext.
   */
  constructor(target: string, tls: SecureClientSessionOptions | undefined) {
    this.#tls = tls;
    this.#name = nameOf(target);
    const addresses = addressesOf(target);
    this.#hasOthers = this.#name !== undefined || addresses.length > 1;
    for (const address of addresses) {
      this.#add(address);
    }
    this.authority = new URL(this.#url(addresses[0] ?? "")).origin;
  }

  /** Return a session manager that opens the stream of one call; a signal ends the call. */
  during(signal: AbortSignal): SessionManager {
    return {
      authority: this.authority,
      request: async (...request) => {
        const stream = await this.#request(...request);
        // Node keeps a stream that the server has ended, and its session, until all of the stream
        // is read; an abandoned call does not read it.
        const drain = () => stream.read();
        signal.addEventListener("abort", () => stream.on("readable", drain).read());
        return stream;
      },
      notifyResponseByteRead: (stream) => {
        for (const { sessions } of this.#servers.values()) {
          sessions.notifyResponseByteRead(stream);
        }
      },
    };
  }

  /** Close the sessions after their streams have ended. */
  close(): void {
    this.#isClosed = true;
    for (const { sessions } of this.#servers.values()) {
      sessions.close();
    }
  }

  async #request(...request: Parameters<SessionManager["request"]>): Promise<ClientHttp2Stream> {
    this.#lookedUp ??= this.#lookUp();
    await this.#lookedUp;
    let failure: unknown;
    for (const server of this.#inTurn()) {
      try {
        return await server.sessions.request(...request);
      } catch (error) {
        failure = error;
        this.#leaveOut(server);
      }
    }
    throw failure;
  }

  /** Return the servers in the order in which a call tries them. */
  #inTurn(): Server[] {
    const all = [...this.#servers.values()];
    const there = all.filter((one) => !one.isGone);
    const usable = there.length > 0 ? there : all;
    const first = this.#turn++ % usable.length;
    return [...usable.slice(first), ...usable.slice(0, first)];
  }

  #leaveOut(server: Server): void {
    if (!server.isGone && this.#hasOthers) {
      server.isGone = true;
      void this.#find(server);
    }
  }

  /** Try to connect to a lost server, as long as the target contains it. */
  async #find(server: Server): Promise<void> {
    for (;;) {
      await this.#lookUp();
      if (this.#isClosed || ![...this.#servers.values()].includes(server)) {
        return;
      }
      if (await server.sessions.connect()) {
        server.isGone = false;
        return;
      }
      // The timer must not keep the process alive.
      await sleep(PAUSE_MS, undefined, { ref: false });
    }
  }

  /** Resolve the name, if there is one. If that fails, the servers stay unchanged. */
  async #lookUp(): Promise<void> {
    const name = this.#name;
    if (name === undefined) {
      return;
    }
    const records = await lookup(hostOf(name), { all: true }).catch(() => []);
    if (records.length === 0 || this.#isClosed) {
      return;
    }
    const known = new Set(records.map((one) => one.address));
    for (const [address, { sessions }] of this.#servers) {
      if (!known.has(address)) {
        this.#servers.delete(address);
        sessions.close();
      }
    }
    for (const record of records) {
      if (!this.#servers.has(record.address)) {
        this.#add(name, record.address);
      }
    }
  }

  /** Add the server at an address, or at one of the hosts that its name resolves to. */
  #add(address: string, host?: string): void {
    const place = { address, host: host ?? hostOf(address), tls: this.#tls };
    const open = () => openSocket({ ...place, hasOthers: this.#hasOthers });
    const sessions = new Sessions(this.#url(address), open);
    this.#servers.set(host ?? address, { sessions, isGone: false });
  }

  #url(address: string): string {
    return `${this.#tls === undefined ? "http" : "https"}://${address}`;
  }
}
