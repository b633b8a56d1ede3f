/** The servers of a target: which of them has the next call, and which are left out. */

import { lookup } from "node:dns/promises";
import type { ClientHttp2Stream, SecureClientSessionOptions } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";

import type { GrpcTransportOptions } from "@connectrpc/connect-node";

import { Sessions } from "./sessions.js";
import { openSocket } from "./socket.js";
import { addressesOf, hostOf, nameOf } from "./target.js";

type SessionManager = NonNullable<GrpcTransportOptions["sessionManager"]>;

/** Milliseconds from one attempt to find a server again to the next. */
const PAUSE_MS = 1_000;

interface Server {
  readonly sessions: Sessions;
  isGone: boolean;
}

/**
 * Lets servers take turns. One that accepts no connection is left out until it does; its call, of
 * which nothing was sent, goes to the next.
 */
export class Servers {
  /** The origin that transports are made for, whichever server a call goes to. */
  readonly authority: string;
  readonly #tls: SecureClientSessionOptions | undefined;
  /** The DNS name that the servers are addresses of, with its port. */
  readonly #name: string | undefined;
  readonly #hasOthers: boolean;
  /** By address; before the name was looked up, by the name. */
  readonly #servers = new Map<string, Server>();
  #lookedUp: Promise<void> | undefined;
  /** At random, so that processes which start together begin with different servers. */
  #turn = Math.floor(Math.random() * 1_000_000);
  #isClosed = false;

  /**
   * @param target - Where they are, normalized.
   * @param tls - What TLS is made with; `undefined` means plaintext.
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

  /** Return what opens the stream of one call; a signal ends the call. */
  during(signal: AbortSignal): SessionManager {
    return {
      authority: this.authority,
      request: async (...request) => {
        const stream = await this.#request(...request);
        // Node keeps a stream that the server has ended, and its session with it, until all of it is read;
        // a call that was left reads no more.
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

  /** Close the sessions, once their streams have ended. */
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

  /** Try to connect to a server that is gone, as long as it is one of the target's. */
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
      await sleep(PAUSE_MS, undefined, { ref: false }); // it keeps no process alive
    }
  }

  /** Look the name up, if there is one. Where that fails the servers stay what they are. */
  async #lookUp(): Promise<void> {
    const name = this.#name;
    if (name === undefined) {
      return;
    }
    const found = await lookup(hostOf(name), { all: true }).catch(() => []);
    if (found.length === 0 || this.#isClosed) {
      return;
    }
    const known = new Set(found.map((one) => one.address));
    for (const [address, { sessions }] of this.#servers) {
      if (!known.has(address)) {
        this.#servers.delete(address);
        sessions.close();
      }
    }
    for (const one of found) {
      if (!this.#servers.has(one.address)) {
        this.#add(name, one.address);
      }
    }
  }

  /** Add the server at an address, or at one of the hosts that the name in it has. */
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
