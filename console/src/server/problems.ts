/** The meaning of a failed call for the reader of the page. */
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema } from "@google/rpc/error_details_pb.js";

export interface Problem {
  /** Short description of the failure. */
  title: string;
  /** The server's own message. */
  message: string;
  /** The next action; empty if the message names it. */
  advice: string;
  /** Reason of the contract without its prefix, such as `THREAD_NOT_FOUND`; may be empty. */
  reason: string;
  /** Whether the same call may succeed later. */
  passing: boolean;
}

const TITLES: Partial<Record<Code, string>> = {
  [Code.NotFound]: "Not found",
  [Code.PermissionDenied]: "Not allowed",
  [Code.Unauthenticated]: "Sign in again",
  [Code.Unavailable]: "The server does not answer",
  [Code.ResourceExhausted]: "Server at capacity",
  [Code.DataLoss]: "Stored data is damaged",
  [Code.DeadlineExceeded]: "The call took too long",
  [Code.Aborted]: "Thread changed",
  [Code.AlreadyExists]: "The name is taken",
  [Code.InvalidArgument]: "The server refused the input",
  [Code.FailedPrecondition]: "Not possible now",
};

const ADVICE: Partial<Record<Code, string>> = {
  [Code.Unavailable]: "This page retries by itself. Nothing that is shown was lost.",
  [Code.PermissionDenied]: "Use a token with the scope that the message names.",
  [Code.Unauthenticated]: "Enter a valid token; the page stays as it is.",
  [Code.ResourceExhausted]: "This page retries by itself.",
};

/** Advice for a reason, where it is more specific than the advice for its code. */
const REASON_ADVICE: Record<string, string> = {
  HEAD_MOVED:
    "Nothing was changed. Close this dialog, look at the latest checkpoint, and decide again.",
  VALUES_MISSING:
    "The server has these values only in the blob store. Change the state with a client, which sends the values again.",
  VERSION_TYPE_CHANGED: "Change the state with the program that made the thread.",
  BACKLOG_FULL: "Try again once the server has certified the backlog.",
};

/** Return a description of the error of a call. */
export function problemOf(error: unknown): Problem {
  const failure = ConnectError.from(error);
  // The browser's own failures of a request have no status: fetch could not reach the server.
  const unreachable = failure.code === Code.Unknown && failure.cause instanceof TypeError;
  const code = unreachable ? Code.Unavailable : failure.code;
  const reason = failure.findDetails(ErrorInfoSchema)[0]?.reason ?? "";
  return {
    title: TITLES[code] ?? "The call failed",
    message: unreachable ? "The connection to the server failed." : failure.rawMessage,
    advice: REASON_ADVICE[reason] ?? ADVICE[code] ?? "",
    reason,
    passing: code === Code.Unavailable || code === Code.ResourceExhausted,
  };
}

/** Return whether the page itself cancelled a call that it no longer needs. */
export function isCancelled(error: unknown): boolean {
  return ConnectError.from(error).code === Code.Canceled;
}
