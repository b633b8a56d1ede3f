/** How the sockets of sessions are opened. */

import type { SecureClientSessionOptions } from "node:http2";
import { connect, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";

import { Code, ConnectError } from "@connectrpc/connect";

import { hostOf, portOf } from "./target.js";

/** Milliseconds that a server has to accept a connection if others can take its calls. */
const CONNECT_MS = 5_000;

/** What a socket leads to. */
export interface Place {
  /** `host:port`; its host is what TLS checks. */
  readonly address: string;
  /** Where that is: the host of the address, or what its name was looked up as. */
  readonly host: string;
  /** What TLS is made with; `undefined` means plaintext. */
  readonly tls: SecureClientSessionOptions | undefined;
  /** Whether other servers can take the calls of one that does not answer. */
  readonly hasOthers: boolean;
}

/** Open a socket. */
export function openSocket({ address, host, tls, hasOthers }: Place): Socket {
  const where = { host, port: portOf(address) };
  const name = hostOf(address);
  const servername = isIP(name) === 0 ? name : ""; // TLS sends no addresses
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
