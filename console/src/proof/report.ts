/** The report of a verification: the same content as a document and as text for people. */

import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { GetServerInfoResponse } from "@contract/admin_service_pb.js";
import type { BlobLocation } from "@contract/checkpoint_pb.js";
import {
  type CheckpointVerdict,
  type GetManifestResponse,
  Verdict,
} from "@contract/thread_service_pb.js";
import { counted, hex, visible } from "../words.ts";
import { outcomeOf } from "./verdicts.ts";
import type { Run } from "./verifying.ts";

const LISTED = 20; // problems that the text lists; the document has all problems

export interface Location {
  blob_id: string;
  identifier: string;
  sha256: string;
  size_bytes: number;
}

export interface ReportedCheckpoint {
  checkpoint_ns: string;
  checkpoint_id: string;
  verdict: "FAIL" | "UNVERIFIED";
  detail: string;
  location: Location | null;
  actual_sha256: string;
}

export interface Report {
  format_version: 1;
  kind: "tuskpoint-verification";
  thread_id: string;
  incarnation: number | null;
  started: string;
  finished: string;
  server: { version: string; journal_id: string; blob_backend: string; address: string };
  /** The newest catalog at the time of the report; null: no checkpoint is certified. */
  catalog: (Location & { certify_time: string | null; generation: number; seq: number }) | null;
  result: "VERIFIED" | "FAILED" | "NOT_ALL_CERTIFIED" | "NOTHING_TO_VERIFY";
  meaning: string[];
  checkpoints: { passed: number; failed: number; unverified: number; retracted: number };
  chain_detail: string;
  journal_details: string[];
  problems: ReportedCheckpoint[];
  /** The command that repeats the check without the server; empty if no checkpoint is certified. */
  check: string;
}

export interface ReportSources {
  threadId: string;
  run: Run;
  info: GetServerInfoResponse;
  manifest: GetManifestResponse | undefined;
  /** The address of the server, as the page knows it. */
  address: string;
  check: string;
}

/** Return the report of a completed run; undefined for any other run. */
export function reportOf(sources: ReportSources): Report | undefined {
  const { threadId, run, info, manifest, address, check } = sources;
  const { log, total, started, finished } = run;
  if (!total || !started || !finished) {
    return undefined;
  }
  const outcome = outcomeOf(log, total);
  const results = { good: "VERIFIED", bad: "FAILED", warn: "NOTHING_TO_VERIFY" } as const;
  return {
    format_version: 1,
    kind: "tuskpoint-verification",
    thread_id: threadId,
    incarnation: manifest ? Number(manifest.incarnation) : null,
    started: started.toISOString(),
    finished: finished.toISOString(),
    server: {
      version: info.version,
      journal_id: info.journalId,
      blob_backend: info.blobBackend,
      address,
    },
    catalog: catalogOf(manifest),
    result:
      total.unverified > 0n && outcome.kind === "warn"
        ? "NOT_ALL_CERTIFIED"
        : results[outcome.kind],
    meaning: outcome.sentences,
    checkpoints: {
      passed: Number(total.passed),
      failed: Number(total.failed),
      unverified: Number(total.unverified),
      retracted: Number(total.retracted),
    },
    chain_detail: total.chainDetail,
    journal_details: total.journalDetails,
    problems: [...log.of(Verdict.FAIL), ...log.of(Verdict.UNVERIFIED)].map(problemOf),
    check,
  };
}

function catalogOf(manifest: GetManifestResponse | undefined): Report["catalog"] {
  if (!manifest?.catalog) {
    return null;
  }
  const { catalog, certifyTime, generation, seq } = manifest;
  return {
    ...locationOf(catalog),
    certify_time: certifyTime ? timestampDate(certifyTime).toISOString() : null,
    generation: Number(generation),
    seq: Number(seq),
  };
}

function locationOf({ blobId, identifier, sha256, sizeBytes }: BlobLocation): Location {
  return { blob_id: blobId, identifier, sha256: hex(sha256), size_bytes: Number(sizeBytes) };
}

function problemOf(one: CheckpointVerdict): ReportedCheckpoint {
  return {
    checkpoint_ns: one.ref?.checkpointNs ?? "",
    checkpoint_id: one.ref?.checkpointId ?? "",
    verdict: one.verdict === Verdict.FAIL ? "FAIL" : "UNVERIFIED",
    detail: one.detail || (one.verdict === Verdict.UNVERIFIED ? "not certified yet" : ""),
    location: one.location ? locationOf(one.location) : null,
    actual_sha256: hex(one.actualSha256),
  };
}

/**
 * Return the report as text; it lists the first problems, and counts the other problems of the
 * document.
 */
export function textOf(report: Report): string {
  const { server, catalog, checkpoints, problems, journal_details } = report;
  const { passed, failed, unverified, retracted } = checkpoints;
  const lines = [
    `Verification of thread ${visible(report.thread_id)}: ${report.result.replaceAll("_", " ")}`,
    "",
    ...report.meaning.map(visible),
    "",
    `checked      ${report.started} to ${report.finished}`,
    `server       ${server.address}, version ${server.version}`,
    `journal      ${server.journal_id}`,
    `blob store   ${server.blob_backend}`,
    ...(report.incarnation === null ? [] : [`incarnation  ${report.incarnation}`]),
    ...(catalog ? catalogLines(catalog) : ["catalog      none: nothing is certified"]),
    `checkpoints  ${passed} passed, ${failed} failed, ${unverified} not certified, ${retracted} deleted`,
    `chain        ${report.chain_detail ? visible(report.chain_detail) : "intact"}`,
    `rows         ${journal_details.length > 0 ? counted(journal_details.length, "problem") : "intact"}`,
    ...journal_details.slice(0, LISTED).map((one) => `  ${visible(one)}`),
  ];
  if (problems.length > 0) {
    lines.push("", "Problems", ...problems.slice(0, LISTED).flatMap(problemLines));
  }
  if (problems.length > LISTED) {
    lines.push(`  and ${counted(problems.length - LISTED, "more", "more")}, listed in the JSON`);
  }
  if (report.check) {
    lines.push(
      "",
      "Check the stored data without this server:",
      `  ${report.check.replaceAll("\n", "\n  ")}`,
    );
  }
  return `${lines.join("\n")}\n`;
}

function catalogLines(catalog: NonNullable<Report["catalog"]>): string[] {
  const { blob_id, identifier, sha256, certify_time, generation, seq } = catalog;
  return [
    `catalog      ${blob_id}${identifier ? `/${identifier}` : ""}`,
    `  SHA-256    ${sha256}`,
    ...(certify_time ? [`  certified  ${certify_time}`] : []),
    `  leads to   change ${seq} of generation ${generation}`,
  ];
}

function problemLines(one: ReportedCheckpoint): string[] {
  const place = `${one.checkpoint_ns ? `${visible(one.checkpoint_ns)} ` : ""}${visible(one.checkpoint_id)}`;
  const { location } = one;
  const isCompared = one.verdict === "FAIL" && location;
  return [
    `  ${one.verdict.padEnd(10)} ${place}${one.detail ? `: ${visible(one.detail)}` : ""}`,
    ...(location
      ? [
          `             blob     ${location.blob_id}${location.identifier ? `/${location.identifier}` : ""}`,
        ]
      : []),
    ...(isCompared
      ? [
          `             recorded ${location.sha256}`,
          `             found    ${one.actual_sha256 || "no bytes"}`,
        ]
      : []),
  ];
}
