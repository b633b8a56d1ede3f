/** Opens the sockets of sessions. */

import type { SecureClientSessionOptions } from "node:http2";
import { connect, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";

import { Code, ConnectError } from "@connectrpc/connect";

import { hostOf, portOf } from "./target.js";

/** Milliseconds that a server has to accept a connection if other servers can take its calls. */
const CONNECT_MS = 5_000;

/** Destination of a socket. */
export interface Place {
  /** `host:port`; TLS checks the host. */
  readonly address: string;
  /** Host to connect to: the host of the address, or the address that its name resolved to. */
  readonly host: string;
  /** Options of TLS; `undefined` means plaintext. */
  readonly tls: SecureClientSessionOptions | undefined;
  /** Whether other servers can take the calls of a server that does not answer. */
  readonly hasOthers: boolean;
}

/** Open a socket. */
export function openSocket({ address, host, tls, hasOthers }: Place): Socket {
  const where = { host, port: portOf(address) };
  const name = hostOf(address);
  // TLS does not send addresses as the server name.
  const servername = isIP(name) === 0 ? name : "";
  const socket =
    tls === undefined
      ? connect(where)
      : connectTls({ ...tls, ...where, servername, ALPNProtocols: ["h2"] });
  if (hasOthers) {
    const late = new ConnectError("the server accepts no connection", Code.Unavailable);
    const timer = setTimeout(() => socket.destroy(late), CONNECT_MS);
    for (const event of ["close", tls === undefined ? "connect" : "secureConnect"]) {
      socket.once(event, () => clearTimeout(timer));
    }
  }
  return socket;
}
