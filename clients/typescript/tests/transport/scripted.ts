/** A server with scripted failures, to test the client's reactions. */

import {
  createSecureServer,
  createServer,
  type SecureServerOptions,
  type ServerHttp2Session,
} from "node:http2";
import { once } from "node:events";
import type { AddressInfo } from "node:net";

import type { ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

/** A server with scripted services. */
export interface ScriptedServer {
  /** Address of the server, as `host:port`. */
  readonly target: string;
  /** Cut all connections, as a machine that dies does. */
  readonly cut: () => void;
  /** Cut all connections and stop the server. */
  readonly close: () => Promise<void>;
}

/**
 * Start a server with the services that a function adds.
 *
 * @param routes - The function.
 * @param address - Address of the server. Default: a free port.
 * @param tls - Options of TLS. Default: plaintext.
 */
export async function scripted(
  routes: (router: ConnectRouter) => void,
  address = "127.0.0.1:0",
  tls?: SecureServerOptions,
): Promise<ScriptedServer> {
  const handler = connectNodeAdapter({ routes });
  const server = tls === undefined ? createServer(handler) : createSecureServer(tls, handler);
  const sessions = new Set<ServerHttp2Session>();
  server.on("session", (session) => {
    sessions.add(session);
    session.on("close", () => sessions.delete(session));
  });
  const cut = () => {
    for (const session of sessions) {
      session.destroy();
    }
  };
  const [host, listen] = address.split(":");
  server.listen(Number(listen), host);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const close = async () => {
    cut();
    server.close();
    await once(server, "close");
  };
  return { target: `${host}:${port}`, cut, close };
}
