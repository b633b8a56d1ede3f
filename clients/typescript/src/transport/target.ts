/** Where a server is: reading what people write as a target. */

import { BlockList, isIP } from "node:net";

import { InvalidRequest } from "../errors.js";

const EXAMPLE = "write host:port, such as 127.0.0.1:7390";
const WEB_ADDRESS = /^(?:https?|grpcs?):\/\/(.*?)\/*$/i;
const HOST_PORT = /^(\[[0-9A-Fa-f:.]+\]|[^\s:/[\]@?#%\\]+):([0-9]{1,5})$/;

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

/**
 * Return a target as `host:port`, or `[v6]:port`.
 *
 * A name of gRPC's with the scheme `dns`, such as `dns:///host:7390`
 * (github.com/grpc/grpc/blob/master/doc/naming.md), is taken too, so that one TUSKPOINT_TARGET
 * suits the clients of all languages.
 *
 * @throws InvalidRequest - It cannot be a target; the message shows what can.
 */
export function normalizeTarget(text: string): string {
  const address = WEB_ADDRESS.exec(text.trim());
  if (address !== null) {
    throw refusal(text, `TuskPoint speaks gRPC, not URLs: try '${address[1]}'`);
  }
  const place = text.trim().replace(/^dns:(\/\/[^/]*\/)?/, "");
  const found = HOST_PORT.exec(place);
  const port = Number(found?.[2]);
  if (found === null || port < 1 || port > 65535 || !URL.canParse(`http://${place}`)) {
    throw refusal(text, EXAMPLE);
  }
  return place;
}

/** Return whether a normalized target names this machine. */
export function isLoopback(target: string): boolean {
  const host = target.slice(0, target.lastIndexOf(":")).replace(/^\[|\]$/g, "");
  if (host.toLowerCase() === "localhost") {
    return true;
  }
  const family = isIP(host);
  return family !== 0 && LOOPBACK.check(host, family === 6 ? "ipv6" : "ipv4");
}

function refusal(text: string, hint: string): InvalidRequest {
  return new InvalidRequest(`'${text}' is no target: ${hint}`, {
    status: "INVALID_ARGUMENT",
    reason: "INVALID_FIELD",
    metadata: { field: "target" },
    violations: [{ field: "target", problem: hint }],
  });
}
