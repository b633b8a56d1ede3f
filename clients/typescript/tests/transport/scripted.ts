/** A server that fails as a test wants, to see what the client does about it. */

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
  /** Where it is, as `host:port`. */
  readonly target: string;
  /** Cut all connections, as a machine does that dies. */
  readonly cut: () => void;
  /** Cut them and stop. */
  readonly close: () => Promise<void>;
}

/**
 * Start a server with the services that a function adds.
 *
 * @param routes - The function.
 * @param address - Where it is. Default: a free port.
 * @param tls - What it makes TLS with. Default: plaintext.
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
