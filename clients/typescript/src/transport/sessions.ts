/** The HTTP/2 sessions with one server: kept alive, reopened when lost, and closed. */

import type { ClientHttp2Stream, Http2Session } from "node:http2";
import type { Socket } from "node:net";

import { Http2SessionManager } from "@connectrpc/connect-node";

import { CheckpointService } from "../gen/tuskpoint/v1/checkpoint_service_pb.js";

/** Path of the streams that stay open while no call is in progress. */
const LASTING = `/${CheckpointService.typeName}/${CheckpointService.method.exchange.name}`;

/**
 * Has one session at a time, besides sessions that a draining server still finishes.
 *
 * A session keeps the process alive only while it has calls. An `Exchange` stream does not count:
 * the timer of each call on the stream keeps the process alive.
 */
export class Sessions {
  readonly #manager: Http2SessionManager;
  /** The open sessions, each with the number of its calls. */
  readonly #open = new Map<Http2Session, number>();

  /**
   * @param url - Address of the server, with `http` or `https`.
   * @param open - Opens a socket to the server.
   */
  constructor(url: string, open: () => Socket) {
    this.#manager = new Http2SessionManager(
      url,
      // Detects a server that vanished while a stream is open; slower than the 5 seconds that gRPC
      // servers commonly require between pings.
      { pingIntervalMs: 30_000, pingTimeoutMs: 20_000 },
      // By default Node refuses new streams while more than 10 MB wait to be sent.
      { createConnection: open, maxSessionMemory: Number.MAX_SAFE_INTEGER },
    );
  }

  /** Open a session if none is open; return whether a session is open. */
  async connect(): Promise<boolean> {
    return (await this.#manager.connect()) !== "error";
  }

  /** Note that a stream was read: its session is alive. */
  notifyResponseByteRead(stream: ClientHttp2Stream): void {
    this.#manager.notifyResponseByteRead(stream);
  }

  /** Close the sessions after their streams have ended. */
  close(): void {
    if (["connecting", "idle"].includes(this.#manager.state())) {
      this.#manager.abort();
    }
    for (const session of this.#open.keys()) {
      session.close();
    }
  }

  /** Open a stream, and a session for the stream if none is open. */
  async request(
    ...request: Parameters<Http2SessionManager["request"]>
  ): Promise<ClientHttp2Stream> {
    const stream = await this.#manager.request(...request);
    const { session } = stream;
    if (session !== undefined) {
      if (!this.#open.has(session)) {
        this.#open.set(session, 0);
        session.once("close", () => this.#open.delete(session));
      }
      const calls = request[1] === LASTING ? 0 : 1;
      this.#count(session, calls);
      stream.once("close", () => this.#count(session, -calls));
    }
    return stream;
  }

  #count(session: Http2Session, change: number): void {
    const calls = this.#open.get(session);
    if (calls === undefined) {
      return; // The session is closed.
    }
    this.#open.set(session, calls + change);
    if (calls + change > 0) {
      session.ref();
    } else {
      session.unref();
    }
  }
}
