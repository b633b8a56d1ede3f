/** The HTTP/2 sessions of one connection: kept alive, opened again when lost, and let go. */

import type {
  ClientHttp2Stream,
  Http2Session,
  OutgoingHttpHeaders,
  SecureClientSessionOptions,
} from "node:http2";

import { Http2SessionManager } from "@connectrpc/connect-node";

type RequestOptions = Parameters<Http2SessionManager["request"]>[3];

/** Has one session at a time, besides those that a server which drains still finishes. */
export class Sessions {
  /** The origin that the sessions are connected to. */
  readonly authority: string;
  readonly #manager: Http2SessionManager;
  readonly #open = new Set<Http2Session>();

  /**
   * @param url - Where the server is, with `http` or `https`.
   * @param tls - What TLS is made with; `undefined` means plaintext.
   */
  constructor(url: string, tls: SecureClientSessionOptions | undefined) {
    this.#manager = new Http2SessionManager(
      url,
      // Finds a server that went away without saying so while a stream is open; slower than the 5
      // seconds below which gRPC servers commonly object.
      { pingIntervalMs: 30_000, pingTimeoutMs: 20_000 },
      // By default Node refuses new streams while more than 10 MB wait to be sent.
      { ...tls, maxSessionMemory: Number.MAX_SAFE_INTEGER },
    );
    this.authority = this.#manager.authority;
  }

  /** Open a stream, and a session for it if none is open. */
  async request(
    method: string,
    path: string,
    headers: OutgoingHttpHeaders,
    options: RequestOptions,
  ): Promise<ClientHttp2Stream> {
    const stream = await this.#manager.request(method, path, headers, options);
    const { session } = stream;
    if (session !== undefined && !this.#open.has(session)) {
      this.#open.add(session);
      session.once("close", () => this.#open.delete(session));
    }
    return stream;
  }

  /** Note that the server was heard of. */
  notifyResponseByteRead(stream: ClientHttp2Stream): void {
    this.#manager.notifyResponseByteRead(stream);
  }

  /** Close the sessions, once their streams have ended. */
  close(): void {
    if (this.#manager.state() === "connecting") {
      this.#manager.abort();
    }
    for (const session of this.#open) {
      session.close();
    }
  }
}
