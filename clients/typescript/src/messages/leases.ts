/** Leases of threads: records, and requests from the options of the client. */

import { hostname } from "node:os";

import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs, durationMs } from "@bufbuild/protobuf/wkt";

import { invalidField } from "../errors.js";
import type { Lease } from "../gen/tuskpoint/v1/lease_pb.js";
import { type AcquireLeaseRequestSchema, OnBusy } from "../gen/tuskpoint/v1/lease_service_pb.js";
import { moment } from "./records.js";
import { choice } from "./words.js";

/** What to do if another driver has the thread. */
export type OnBusyName = "reject" | "wait" | "take_over";

const ON_BUSY: Readonly<Record<OnBusyName, OnBusy>> = {
  reject: OnBusy.REJECT,
  wait: OnBusy.WAIT,
  take_over: OnBusy.TAKE_OVER,
};
export const TTL_MS = 30_000;
export const WAIT_MS = 30_000;

/** The right to change a thread. */
export interface LeaseRecord {
  /** The thread. */
  readonly threadId: string;
  /** ID of the lease; empty in the description of a thread: only the holder knows the ID. */
  readonly leaseId: string;
  /** Number that is greater than the fences of all earlier leases of the thread. */
  readonly fence: bigint;
  /** Name of the driver. */
  readonly owner: string;
  /** Whether changes without the lease are accepted. */
  readonly advisory: boolean;
  /** Time at which the lease ends unless it is extended. */
  readonly expires: Date | undefined;
  /** Time of the acquisition. */
  readonly acquired: Date | undefined;
  /** Milliseconds from an extension to the end. */
  readonly ttlMs: number;
}

/** Which lease to acquire. */
export interface LeaseRequest {
  /** Name of the driver, for people. Default: this machine and process. */
  readonly owner?: string | undefined;
  /** Milliseconds after which the lease ends unless it is extended. Default: 30,000. */
  readonly ttlMs?: number | undefined;
  /**
   * What to do if another driver has the thread: "reject" fails with `ThreadBusy`, "wait" waits for
   * the end of its lease, "take_over" ends its lease. Default: "wait" if `waitMs` is given, else
   * "reject".
   */
  readonly onBusy?: OnBusyName | undefined;
  /** Longest wait in milliseconds, with "wait". Default: 30,000. */
  readonly waitMs?: number | undefined;
  /** Whether the server accepts changes of callers without a lease. */
  readonly advisory?: boolean | undefined;
}

/** Return a lease as a record. */
export function leaseRecord(message: Lease): LeaseRecord {
  const { threadId, leaseId, fence, owner, advisory } = message;
  return {
    threadId,
    leaseId,
    fence,
    owner,
    advisory,
    expires: moment(message.expireTime),
    acquired: moment(message.acquireTime),
    ttlMs: message.ttl === undefined ? 0 : durationMs(message.ttl),
  };
}

/** Return whether a request waits for another driver. */
export function waits({ onBusy, waitMs }: LeaseRequest): boolean {
  return onBusy === "wait" || (onBusy === undefined && waitMs !== undefined);
}

/**
 * Return the request that acquires a lease.
 *
 * @throws InvalidRequest - A time is not a number of at least 0, or `onBusy` is unknown.
 */
export function acquiring(
  threadId: string,
  options: LeaseRequest,
): MessageInitShape<typeof AcquireLeaseRequestSchema> {
  const { owner = `${hostname()}:${process.pid}`, ttlMs = TTL_MS, waitMs = WAIT_MS } = options;
  const isWaiting = waits(options);
  return {
    threadId,
    owner,
    ttl: duration("ttlMs", ttlMs),
    onBusy: choice("onBusy", options.onBusy ?? (isWaiting ? "wait" : "reject"), ON_BUSY),
    advisory: options.advisory ?? false,
    ...(isWaiting ? { wait: duration("waitMs", waitMs) } : {}),
  };
}

function duration(name: string, ms: number) {
  if (!(ms >= 0 && ms <= 1e9)) {
    throw invalidField(name, `it must be a number of milliseconds, at least 0, not ${ms}`);
  }
  return durationFromMs(ms);
}
