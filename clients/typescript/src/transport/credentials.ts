/** The credentials of a client, and its trust in the server: tokens and TLS. */

import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import type { SecureClientSessionOptions } from "node:http2";
import { createSecureContext, type SecureContextOptions } from "node:tls";

import { InvalidRequest, invalidField, messageOf } from "../errors.js";
import { isLoopback } from "./target.js";

/** Tokens and TLS from the caller. They take precedence over the environment. */
export interface CredentialOptions {
  /** The bearer token. Default: TUSKPOINT_TOKEN, else the text of the file TUSKPOINT_TOKEN_FILE. */
  readonly token?: string | undefined;
  /**
   * File with trusted CA certificates, in PEM. Default: TUSKPOINT_CA_FILE, else
   * the roots that Node trusts.
   */
  readonly caFile?: string | undefined;
  /** File with the client's own certificate, in PEM, for mutual TLS. Default: TUSKPOINT_CERT_FILE. */
  readonly certFile?: string | undefined;
  /**
   * File with the key of that certificate, in PEM, without a password. Default: TUSKPOINT_KEY_FILE.
   */
  readonly keyFile?: string | undefined;
  /**
   * Whether to use TLS. Default: TUSKPOINT_TLS ("1" or "0"); else TLS is used with a CA or a
   * certificate, or with a token for a target on another machine.
   */
  readonly tls?: boolean | undefined;
}

/** Tokens and TLS for a connection. */
export interface Credentials {
  /** Options of TLS; `undefined` means plaintext. */
  readonly tls: SecureClientSessionOptions | undefined;
  /**
   * Return the token for the next call, if any. A token file is read for each call; while the file
   * is missing or empty, the last token is used, and a process warning reports the problem.
   */
  readonly token: () => string | undefined;
}

/** The variables of an environment, such as `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>;

const FLAGS: Readonly<Record<string, boolean>> = { "1": true, "0": false };
const TOKEN = /^[\x21-\x7e]+$/;

/**
 * Return the credentials for a target.
 *
 * @throws InvalidRequest - The options contradict one another, or a file cannot be read.
 */
export function credentialsFor(
  target: string,
  options: CredentialOptions,
  environment: Environment,
): Credentials {
  const token = tokenSource(options.token, environment);
  const given = options.caFile ?? options.certFile ?? options.keyFile;
  if (options.tls === false && given !== undefined) {
    throw invalidField("tls", "it is off, but a certificate is given: remove either");
  }
  const wantsTls = options.tls ?? (given === undefined ? flag(environment["TUSKPOINT_TLS"]) : true);
  if (wantsTls === false) {
    return { tls: undefined, token: token ?? (() => undefined) };
  }
  const files = filesOf(options, environment);
  const isNeeded = Object.keys(files).length > 0 || (token !== undefined && !isLoopback(target));
  return {
    tls: (wantsTls ?? isNeeded) ? readAll(files) : undefined,
    token: token ?? (() => undefined),
  };
}

/** Return the files of TLS by Node's names for their contents. */
function filesOf(options: CredentialOptions, environment: Environment): Record<string, string> {
  const ca = options.caFile ?? environment["TUSKPOINT_CA_FILE"];
  let { certFile: cert, keyFile: key } = options;
  // Certificate and key belong together: both come from the options or both from the environment.
  if (cert === undefined && key === undefined) {
    cert = environment["TUSKPOINT_CERT_FILE"];
    key = environment["TUSKPOINT_KEY_FILE"];
  }
  if (!cert !== !key) {
    throw invalidField("certFile", "a certificate and its key go together: give both or neither");
  }
  return { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) };
}

function tokenSource(
  given: string | undefined,
  environment: Environment,
): (() => string) | undefined {
  const token = given ?? (environment["TUSKPOINT_TOKEN"] || undefined);
  if (token !== undefined) {
    const checked = checkedToken("token", token);
    return () => checked;
  }
  const path = environment["TUSKPOINT_TOKEN_FILE"] || undefined;
  if (path === undefined) {
    return undefined;
  }
  const read = () =>
    checkedToken("TUSKPOINT_TOKEN_FILE", readText("TUSKPOINT_TOKEN_FILE", path).trim());
  let last = read();
  let problem = "";
  return () => {
    try {
      last = read();
      problem = "";
    } catch (error) {
      // While the file is being replaced, it may be missing or empty.
      if (!(error instanceof InvalidRequest)) {
        throw error;
      }
      if (error.message !== problem) {
        problem = error.message;
        process.emitWarning(`the last token stays in use: ${problem}`, "TuskPointWarning");
      }
    }
    return last;
  };
}

/** Return a checked token; errors never contain its text. */
function checkedToken(field: string, token: string): string {
  if (!TOKEN.test(token)) {
    throw invalidField(
      field,
      "it must be one word of ASCII characters, and not empty; use a token that `tuskpoint-server token` printed",
    );
  }
  return token;
}

function flag(text: string | undefined): boolean | undefined {
  if (text === undefined || text === "") {
    return undefined;
  }
  const chosen = FLAGS[text];
  if (chosen === undefined) {
    throw invalidField("TUSKPOINT_TLS", "it must be 1 (TLS) or 0 (plaintext)");
  }
  return chosen;
}

/** Read the files, and check their contents. */
function readAll(files: Readonly<Record<string, string>>): SecureClientSessionOptions {
  const tls: SecureContextOptions = Object.fromEntries(
    Object.entries(files).map(([name, path]) => [name, readText(`${name}File`, path)]),
  );
  if (typeof tls.ca === "string") {
    const { ca } = tls;
    attempt("caFile", () => new X509Certificate(ca));
  }
  attempt("certFile", () => createSecureContext(tls));
  return tls;
}

function attempt(field: string, read: () => unknown): void {
  try {
    read();
  } catch (error) {
    throw invalidField(field, `it is not a certificate or key in PEM: ${messageOf(error)}`);
  }
}

function readText(field: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw invalidField(field, `it cannot be read: ${messageOf(error)}`);
  }
}
