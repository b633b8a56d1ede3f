/** Parses the targets that people write: the addresses of servers. */

import { BlockList, isIP } from "node:net";

import { InvalidRequest } from "../errors.js";

/** Default port of a server. */
export const DEFAULT_PORT = 7390;

const EXAMPLE =
  "write host:port, such as 127.0.0.1:7390, or a name such as dns:///host:7390; for several " +
  "servers host1:7390,host2:7390, without a scheme";
const WEB_ADDRESS = /^(?:https?|grpcs?):\/\/(.*?)\/*$/i;
const DNS_NAME = /^dns:(?:\/\/[^/]*\/)?(.*)$/;
const HOST_PORT = /^(\[[0-9A-Fa-f:.]+\]|[^\s:/[\]@?#%\\]+):([0-9]{1,5})$/;

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

/**
 * Return a target as `host:port`, `[v6]:port`, several of them with commas between, or
 * `dns:///host:port` (github.com/grpc/grpc/blob/master/doc/naming.md).
 *
 * @throws InvalidRequest - The text is not a target; the message shows valid targets.
 */
export function normalizeTarget(text: string): string {
  const address = WEB_ADDRESS.exec(text.trim());
  if (address !== null) {
    throw refusal(text, `TuskPoint speaks gRPC, not URLs: try '${address[1]}'`);
  }
  const name = nameOf(text.trim());
  const places = (name ?? text).split(",").map((one) => one.trim());
  if ((name !== undefined && places.length > 1) || !places.every(isPlace)) {
    throw refusal(text, EXAMPLE);
  }
  return name === undefined ? places.join(",") : `dns:///${name}`;
}

/** Return the DNS name of a target, with its port; `undefined` if the target is not a DNS name. */
export function nameOf(target: string): string | undefined {
  return DNS_NAME.exec(target)?.[1];
}

/** Return the addresses of a normalized target, each as `host:port`. */
export function addressesOf(target: string): string[] {
  return (nameOf(target) ?? target).split(",");
}

/** Return whether a normalized target names only this machine. */
export function isLoopback(target: string): boolean {
  return addressesOf(target).every((one) => isHere(hostOf(one)));
}

/** Return the host of an address; an IPv6 address has no brackets. */
export function hostOf(address: string): string {
  return address.slice(0, address.lastIndexOf(":")).replace(/^\[|\]$/g, "");
}

/** Return the port of an address. */
export function portOf(address: string): number {
  return Number(address.slice(address.lastIndexOf(":") + 1));
}

function isPlace(text: string): boolean {
  const match = HOST_PORT.exec(text);
  const port = Number(match?.[2]);
  return match !== null && port >= 1 && port <= 65535 && URL.canParse(`http://${text}`);
}

function isHere(host: string): boolean {
  if (host.toLowerCase() === "localhost") {
    return true;
  }
  const family = isIP(host);
  return family !== 0 && LOOPBACK.check(host, family === 6 ? "ipv6" : "ipv4");
}

function refusal(text: string, hint: string): InvalidRequest {
  return new InvalidRequest(`'${text}' is not a target: ${hint}`, {
    status: "INVALID_ARGUMENT",
    reason: "INVALID_FIELD",
    metadata: { field: "target" },
    violations: [{ field: "target", problem: hint }],
  });
}
