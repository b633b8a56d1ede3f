/** Leases of threads: acquiring, extending and releasing them. */

import { hostname } from "node:os";

import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";

import { invalidField, ServerError } from "../errors.js";
import { type AcquireLeaseRequestSchema, OnBusy } from "../gen/tuskpoint/v1/lease_service_pb.js";
import { leaseRecord, type LeaseRecord } from "../messages/threads.js";
import { choice } from "../messages/words.js";
import type { Calls } from "../transport/calls.js";
import type { CallOptions } from "../transport/connection.js";
import { callOf, checkTexts } from "./arguments.js";
import { Items } from "./items.js";

/** What to do if another driver has the thread. */
export type OnBusyName = "reject" | "wait" | "take_over";

const ON_BUSY: Readonly<Record<OnBusyName, OnBusy>> = {
  reject: OnBusy.REJECT,
  wait: OnBusy.WAIT,
  take_over: OnBusy.TAKE_OVER,
};
const TTL_MS = 30_000;
const WAIT_MS = 30_000;

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

/** Return whether a request waits for another driver. */
function waits({ onBusy, waitMs }: LeaseRequest): boolean {
  return onBusy === "wait" || (onBusy === undefined && waitMs !== undefined);
}

/**
 * Return the request that acquires a lease.
 *
 * @throws InvalidRequest - A time is not a number of at least 0, or `onBusy` is unknown.
 */
function acquiring(
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

/** Options of a lease. */
export interface LeaseOptions extends LeaseRequest, CallOptions {}

/** Extensions in the time of a lease. */
const BEATS = 3;
/** Time of an acquisition besides its wait. */
const CALL_MS = 30_000;

/** Acquire a lease; the calls name it in each change of the thread from then on. */
export async function acquire(
  calls: Calls,
  threadId: string,
  options: LeaseOptions,
): Promise<LeaseRecord> {
  checkTexts({ threadId });
  const waitMs = waits(options) ? (options.waitMs ?? WAIT_MS) : 0;
  const call = callOf({ ...options, timeoutMs: options.timeoutMs ?? CALL_MS + waitMs });
  const { lease } = await calls.connection.raw.leases.acquireLease(
    acquiring(threadId, options),
    call,
  );
  if (lease === undefined) {
    throw new ServerError("the server's answer has no lease", { status: "INTERNAL" });
  }
  calls.leases.enter(threadId, lease.leaseId);
  return leaseRecord(lease);
}

/** End a lease; return whether it held until now. */
export async function release(
  calls: Calls,
  { threadId, leaseId }: LeaseRecord,
  options: CallOptions = {},
): Promise<boolean> {
  calls.leases.leave(threadId, leaseId);
  const request = { threadId, leaseId };
  return (await calls.connection.raw.leases.releaseLease(request, callOf(options))).released;
}

/**
 * Hold a lease while some work runs; see `Client.withLease`. The lease is extended in the
 * background; a failed extension is repeated at the next interval.
 */
export async function withLease<T>(
  calls: Calls,
  threadId: string,
  options: LeaseOptions,
  work: (lease: LeaseRecord, lost: AbortSignal) => T | Promise<T>,
): Promise<T> {
  const lease = await acquire(calls, threadId, options);
  const lost = calls.leases.lossOf(lease.leaseId);
  let isBeating = false;
  const beat = async () => {
    if (isBeating || lost.aborted) {
      return;
    }
    isBeating = true;
    try {
      await calls.connection.raw.leases.keepLease({ threadId, leaseId: lease.leaseId });
    } catch (error) {
      calls.leases.note(error);
    } finally {
      isBeating = false;
    }
  };
  const timer = setInterval(() => void beat(), lease.ttlMs / BEATS);
  try {
    return await work(lease, lost);
  } finally {
    clearInterval(timer);
    // After a failure the time of the lease ends it: the work is done.
    await release(calls, lease).catch(() => false);
  }
}

/** The part of the client that drives threads under leases. */
export abstract class Leases extends Items {
  /**
   * Run some work as the only driver of a thread.
   *
   * Meanwhile the client extends the lease in the background, and names the lease in each save,
   * write, rollback and effect of the thread. If an extension or a refused save shows that the lease
   * was lost, the signal is aborted with the `LeaseLost`, and the next of these calls fails with it.
   *
   * @param work - The work; gets the lease, and a signal that is aborted if the lease is lost.
   * @throws ThreadBusy - Another driver has the thread.
   */
  async withLease<T>(
    threadId: string,
    options: LeaseOptions,
    work: (lease: LeaseRecord, lost: AbortSignal) => T | Promise<T>,
  ): Promise<T> {
    return await withLease(this.calls, threadId, options, work);
  }

  /**
   * Acquire a lease, which the caller extends with `keepLease`. Prefer `withLease`.
   *
   * Until `releaseLease`, the client names the lease in each save, write, rollback and effect of the
   * thread.
   *
   * @throws ThreadBusy - Another driver has the thread.
   */
  async acquireLease(threadId: string, options: LeaseOptions = {}): Promise<LeaseRecord> {
    return await acquire(this.calls, threadId, options);
  }

  /**
   * Extend a lease: its time starts again.
   *
   * @throws LeaseLost - The lease has ended.
   */
  async keepLease(lease: LeaseRecord, options: CallOptions = {}): Promise<LeaseRecord> {
    const { threadId, leaseId } = lease;
    const kept = await this.raw.leases.keepLease({ threadId, leaseId }, callOf(options));
    return kept.lease === undefined ? lease : leaseRecord(kept.lease);
  }

  /** End a lease; return whether it held until now. */
  async releaseLease(lease: LeaseRecord, options: CallOptions = {}): Promise<boolean> {
    return await release(this.calls, lease, options);
  }
}
