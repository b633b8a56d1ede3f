/** The problems that need a person, from the status of a server. */
import { timestampMs } from "@bufbuild/protobuf/wkt";
import type {
  GetArchiveStatusResponse,
  MemWalStatus,
  SearchStatus,
} from "@contract/admin_service_pb.js";
import { ago, bytes, counted } from "../words.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

/**
 * Limits above which a value counts as wrong: the same as for the alerts in
 * docs/servers/monitoring.md.
 */
export const LONGEST_BACKLOG_MS = 15 * MINUTE_MS;
export const LARGEST_BACKLOG = 256n * 1024n * 1024n;
export const LONGEST_UNINDEXED_MS = 15 * MINUTE_MS;
/** A blob that expires within this time was not renewed in time. */
export const EXPIRES_SOON_MS = DAY_MS;

export interface Finding {
  /** `bad`: data may be lost, or work has stopped; `warn`: that will happen without an action. */
  kind: "bad" | "warn";
  title: string;
  /** The server's message, for people; may be empty. */
  detail: string;
  /** The next action. */
  advice: string;
}

/**
 * Return the problems that need a person, the worst first; empty if there are none. `now` is in
 * milliseconds.
 */
export function findingsOf(status: GetArchiveStatusResponse, now: number): Finding[] {
  const findings = [
    ...certification(status, now),
    ...content(status),
    ...damage(status),
    ...renewal(status, now),
    ...(status.search ? search(status.search, now) : []),
  ];
  return [
    ...findings.filter(({ kind }) => kind === "bad"),
    ...findings.filter(({ kind }) => kind === "warn"),
  ];
}

function certification(status: GetArchiveStatusResponse, now: number): Finding[] {
  const findings: Finding[] = [];
  const { lastError, lastErrorTime, oldestUncertifiedTime, backlogBytes } = status;
  if (lastError) {
    findings.push({
      kind: "bad",
      title: `Certification or renewal fails${lastErrorTime ? `, the last time ${ago(lastErrorTime, now)}` : ""}`,
      detail: lastError,
      advice:
        "Nothing acknowledged is lost: the journal has everything, and the server retries. Check that the blob store and the key provider answer.",
    });
  }
  if (oldestUncertifiedTime && now - timestampMs(oldestUncertifiedTime) > LONGEST_BACKLOG_MS) {
    findings.push({
      kind: "bad",
      title: `A change that was saved ${ago(oldestUncertifiedTime, now)} is not certified`,
      detail: "",
      advice:
        "The blob store or the key provider does not answer, or the server that flushes is gone: the last error below says which. Without an error, try Flush.",
    });
  }
  if (backlogBytes > LARGEST_BACKLOG) {
    findings.push({
      kind: "warn",
      title: `${bytes(backlogBytes)} wait for certification`,
      detail: "",
      advice:
        "The blob store is down or slow. Saves are refused with BACKLOG_FULL once --backlog-hard-limit is reached.",
    });
  }
  return findings;
}

function content({ gaps, firstGaps }: GetArchiveStatusResponse): Finding[] {
  if (gaps === 0n) {
    return [];
  }
  const lost = firstGaps.some(({ segmentSha256 }) => segmentSha256.length > 0);
  return [
    {
      kind: "bad",
      title: `${counted(gaps, "gap")}: what cannot be stored, or was lost`,
      detail: firstGaps[0]?.reason ?? "",
      advice: lost
        ? "A stored segment was lost. Verify the threads listed under Gaps, and restore the blobs from a copy of the store."
        : "All other checkpoints are certified. The reasons are listed under Gaps; the server retries each with the next flush, and after ten minutes.",
    },
  ];
}

function damage({ damagedThreadIds }: GetArchiveStatusResponse): Finding[] {
  if (damagedThreadIds.length === 0) {
    return [];
  }
  return [
    {
      kind: "bad",
      title: `${counted(damagedThreadIds.length, "thread")} with damage in the journal`,
      detail: damagedThreadIds.join(", "),
      advice:
        "Nothing damaged is served. Verify each thread to see what is wrong, find out who else writes to the database, then restore a backup.",
    },
  ];
}

function renewal(status: GetArchiveStatusResponse, now: number): Finding[] {
  const findings: Finding[] = [];
  const { earliestExpireTime, failingRenewals } = status;
  const left = earliestExpireTime ? timestampMs(earliestExpireTime) - now : undefined;
  if (earliestExpireTime && left !== undefined && left < EXPIRES_SOON_MS) {
    const when = ago(earliestExpireTime, now);
    findings.push({
      kind: "bad",
      title:
        left > 0
          ? `A blob that is needed expires ${when}`
          : `A blob that is needed expired ${when}`,
      detail: "",
      advice:
        "Renewals do not happen in time. Check the publisher, its wallet and its token; the log names the blob and the reason.",
    });
  }
  if (failingRenewals > 0) {
    findings.push({
      kind: "warn",
      title: `${counted(failingRenewals, "blob")} could not be renewed`,
      detail: "",
      advice: `${earliestExpireTime ? `Repair it before the earliest expiry, ${ago(earliestExpireTime, now)}. ` : ""}Often the publisher has no SUI or WAL left; the log names the blob and the reason.`,
    });
  }
  return findings;
}

function search(status: SearchStatus, now: number): Finding[] {
  const findings: Finding[] = [];
  const { oldestUnindexedTime, lastError, unindexedCheckpoints } = status;
  if (lastError) {
    findings.push({
      kind: "warn",
      title: "Indexing for the search fails",
      detail: lastError,
      advice:
        "Searches miss the newest checkpoints; saves and loads still work. Check the embedder, if the server has one.",
    });
  }
  if (oldestUnindexedTime && now - timestampMs(oldestUnindexedTime) > LONGEST_UNINDEXED_MS) {
    findings.push({
      kind: "warn",
      title: `Search is behind: ${counted(unindexedCheckpoints, "checkpoint")} wait, the oldest since ${ago(oldestUnindexedTime, now)}`,
      detail: "",
      advice: "The embedder is down or slow, or the machine is busy. Saves and loads still work.",
    });
  }
  return status.memwal ? [...findings, ...memwal(status.memwal)] : findings;
}

function memwal({ healthy, lastError }: MemWalStatus): Finding[] {
  if (healthy) {
    return [];
  }
  return [
    {
      kind: "warn",
      title: "MemWal does not answer",
      detail: lastError || "Its last call did not succeed.",
      advice:
        "Searches come from the server's own index meanwhile, and summaries wait. Check the relayer and the credentials (MEMWAL_…).",
    },
  ];
}
