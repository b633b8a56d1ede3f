/** Converts errors of the transport, and `CallError` messages, to the classes of `errors.ts`. */

import { toBinary, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";

import {
  BadRequestSchema,
  ErrorInfoSchema,
  PreconditionFailureSchema,
  RetryInfoSchema,
} from "../gen/google/rpc/error_details_pb.js";
import { ErrorReason, type CallError } from "../gen/tuskpoint/v1/errors_pb.js";
import {
  errorClass,
  InvalidRequest,
  notEncodable,
  type TuskPointError,
  type ErrorDetails,
  type FieldViolation,
  type StatusName,
} from "../errors.js";
import { addressesOf, DEFAULT_PORT, isLoopback, portOf } from "./target.js";

/** The canonical statuses by number, from 1 (grpc.io/docs/guides/status-codes). */
const STATUSES: readonly StatusName[] = [
  "CANCELLED",
  "UNKNOWN",
  "INVALID_ARGUMENT",
  "DEADLINE_EXCEEDED",
  "NOT_FOUND",
  "ALREADY_EXISTS",
  "PERMISSION_DENIED",
  "RESOURCE_EXHAUSTED",
  "FAILED_PRECONDITION",
  "ABORTED",
  "OUT_OF_RANGE",
  "UNIMPLEMENTED",
  "INTERNAL",
  "UNAVAILABLE",
  "DATA_LOSS",
  "UNAUTHENTICATED",
];

/**
 * Statuses that Connect gives to a broken or failed connection: a reset, a stream without its end,
 * a refused certificate.
 */
const BROKEN: ReadonlySet<StatusName> = new Set(["INTERNAL", "ABORTED", "CANCELLED"]);

/** Codes of Node's TLS for an untrusted certificate (nodejs.org/api/tls.html). */
const UNTRUSTED =
  /^(ERR_TLS_CERT|CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_(GET|VERIFY)_|HOSTNAME_)/;

/** Code of Node's TLS for a server that does not answer a handshake with TLS. */
const PLAINTEXT = /^ERR_SSL_WRONG_VERSION_NUMBER$/;

/** Advice for the caller, by the reason that the service gives. */
const ADVICE: Readonly<Record<string, string>> = {
  CREDENTIAL_INVALID:
    "the client's token is its option `token`, the value of TUSKPOINT_TOKEN, or what is in the file " +
    "that TUSKPOINT_TOKEN_FILE names",
  SCOPE_MISSING: "give the client a token that has it",
};

/** Return the error for a failed call. */
export function fromConnectError(error: ConnectError, target: string): TuskPointError {
  const given = STATUSES[error.code - 1] ?? "UNKNOWN";
  const details = detailsOf(error);
  if (details.reason) {
    return build(given, error.rawMessage, { ...details, cause: error });
  }
  // The service gives a reason with every error. gRPC's core gives none when a stream is ended
  // while the client still sends, for example by a draining server.
  const isBroken = given === "INTERNAL" || (!hasStatus(error) && BROKEN.has(given));
  const status = isBroken ? "UNAVAILABLE" : given;
  return build(status, explain(status, error, target), { ...details, cause: error });
}

/** Return the error for a call that was refused on a stream. */
export function fromCallError(error: CallError): TuskPointError {
  return build(STATUSES[error.code - 1] ?? "UNKNOWN", error.message, {
    reason: error.reason === ErrorReason.UNSPECIFIED ? "" : (ErrorReason[error.reason] ?? ""),
    metadata: error.metadata,
    violations: error.fieldViolations.map((one) => violation(one.field, one.description)),
    retryAfterMs: error.retryAfter === undefined ? undefined : durationMs(error.retryAfter),
  });
}

/**
 * Return the error for an unsent request: the error itself, unless the request cannot be encoded.
 *
 * Connect gives such an error the status of a broken connection.
 */
export function unsent<T extends DescMessage>(
  error: unknown,
  schema: T,
  message: MessageShape<T>,
): unknown {
  if (!(error instanceof ConnectError) || error.code !== Code.Internal || hasStatus(error)) {
    return error;
  }
  try {
    toBinary(schema, message);
    return error;
  } catch (cause) {
    return notEncodable(cause);
  }
}

/** Return whether the certificate of a server is not trusted. */
export function isUntrusted(error: unknown): boolean {
  return causeCode(error, UNTRUSTED) !== undefined;
}

function build(status: StatusName, message: string, details: ErrorDetails): TuskPointError {
  const kind = errorClass(status, details.reason ?? "");
  const named = (details.violations ?? []).map(({ field, problem }) => `${field}: ${problem}`);
  const list = named.join("; ");
  const isListed = kind !== InvalidRequest || list === "" || message.includes(list);
  const more = isListed ? ADVICE[details.reason ?? ""] : list;
  return new kind(more === undefined ? message : `${message} (${more})`, { ...details, status });
}

/** Return whether the server itself answered: its answer has a status among the headers. */
function hasStatus(error: ConnectError): boolean {
  return error.metadata.has("grpc-status");
}

function detailsOf(error: ConnectError): ErrorDetails {
  const info = error.findDetails(ErrorInfoSchema)[0];
  const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
  const fields = error
    .findDetails(BadRequestSchema)
    .flatMap((one) => one.fieldViolations)
    .map((one) => violation(one.field, one.description));
  const values = error
    .findDetails(PreconditionFailureSchema)
    .flatMap((one) => one.violations)
    .filter((one) => one.type === "VALUE")
    .map((one) => violation(one.subject, one.description));
  return {
    reason: info?.reason ?? "",
    metadata: info?.metadata ?? {},
    violations: [...fields, ...values],
    retryAfterMs: delay === undefined ? undefined : durationMs(delay),
  };
}

function violation(field: string, problem: string): FieldViolation {
  return { field, problem };
}

/** Return the message for a status that does not come from the service's own table. */
function explain(status: StatusName, error: ConnectError, target: string): string {
  const text = error.rawMessage.trim(); // OpenSSL ends its texts with a line break.
  const untrusted = causeCode(error, UNTRUSTED);
  if (untrusted !== undefined) {
    return (
      `the certificate of ${target} is not trusted (${untrusted}): set the CA that signed it with ` +
      "`caFile` or TUSKPOINT_CA_FILE, and use a target that the certificate names"
    );
  }
  if (causeCode(error, PLAINTEXT) !== undefined) {
    return (
      `${target} does not speak TLS: start it with --tls-cert and --tls-key, or switch TLS off in ` +
      `the client with \`tls: false\` or TUSKPOINT_TLS=0 (${text})`
    );
  }
  switch (status) {
    case "UNAVAILABLE":
      return isHangUp(error)
        ? `${target} closed the connection: check that both sides use TLS or neither does ` +
            "(TUSKPOINT_CA_FILE, TUSKPOINT_TLS), and that the client has a certificate if the server asks for one " +
            `(TUSKPOINT_CERT_FILE, TUSKPOINT_KEY_FILE) (${text})`
        : noAnswer(target, text);
    case "RESOURCE_EXHAUSTED":
      return (
        "a message is larger than the sender or the receiver allows: save less in metadata and " +
        `identifiers; values of any size are sent in chunks (${text})`
      );
    case "DEADLINE_EXCEEDED":
      return (
        `${target} did not answer in time; what it journaled by then stays, and the same call ` +
        `may be repeated (${text})`
      );
    case "UNIMPLEMENTED":
      return `${target} is not a TuskPoint server, or lacks this call (${text})`;
    case "CANCELLED":
      return `the call to ${target} was cancelled before it was answered (${text})`;
    default:
      return text === "" ? `${target} answered ${status}` : `${target} answered ${status}: ${text}`;
  }
}

/**
 * Return the message for a target without a server that answers.
 *
 * @param target - The target, normalized.
 * @param text - Message of the transport.
 */
export function noAnswer(target: string, text: string): string {
  const [address = "", ...others] = addressesOf(target);
  const port = portOf(address);
  const flag = others.length > 0 || port === DEFAULT_PORT ? "" : ` --port ${port}`;
  const remedy = isLoopback(target)
    ? `start one with \`tuskpoint-server dev${flag}\``
    : "check that it runs and can be reached from here";
  return (
    `no TuskPoint server answers at ${target}: ${remedy}, or set the right target in the argument ` +
    `or in TUSKPOINT_TARGET, with TLS if the server uses it (${text})`
  );
}

/** Return whether the other side accepted the connection and closed it without an answer. */
function isHangUp(error: ConnectError): boolean {
  return error.code === Code.Canceled && !hasStatus(error);
}

/** Return the code of the first cause whose code matches the form. */
function causeCode(error: unknown, form: RegExp): string | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const code = "code" in cause ? cause.code : undefined;
    if (typeof code === "string" && form.test(code)) {
      return code;
    }
  }
  return undefined;
}
