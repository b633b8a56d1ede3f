import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { GetServerInfoResponseSchema } from "@contract/admin_service_pb.js";
import { BlobLocationSchema } from "@contract/checkpoint_pb.js";
import { ManifestEntrySchema } from "@contract/manifest_pb.js";
import {
  CheckpointVerdictSchema,
  GetManifestResponseSchema,
  Verdict,
  VerificationTotalSchema,
} from "@contract/thread_service_pb.js";
import { expect, test } from "vitest";
import { chainOf } from "../src/proof/chain.ts";
import { auditCatalog, auditManifest, quoted, recover } from "../src/proof/commands.ts";
import { reportOf, textOf } from "../src/proof/report.ts";
import { KINDS, outcomeOf, sealText, VerdictLog } from "../src/proof/verdicts.ts";

const location = (blobId: string, byte = 1, identifier = "") =>
  create(BlobLocationSchema, {
    blobId,
    identifier,
    sha256: new Uint8Array(32).fill(byte),
    sizeBytes: 10n,
  });

const verdict = (checkpointId: string, kind: Verdict, detail = "") =>
  create(CheckpointVerdictSchema, {
    ref: { threadId: "t", checkpointNs: "", checkpointId },
    verdict: kind,
    detail,
    location: location("b"),
    actualSha256: kind === Verdict.FAIL ? new Uint8Array(32).fill(2) : new Uint8Array(),
  });

function logOf(...verdicts: ReturnType<typeof verdict>[]): VerdictLog {
  const log = new VerdictLog();
  for (const one of verdicts) {
    log.take(one);
  }
  return log;
}

const total = (counts: object) => create(VerificationTotalSchema, counts);

test("pages list what failed first, and nothing twice", () => {
  const log = logOf(
    verdict("1", Verdict.PASS),
    verdict("2", Verdict.FAIL),
    verdict("3", Verdict.UNVERIFIED),
    verdict("4", Verdict.PASS),
    verdict("5", Verdict.RETRACTED),
  );
  const ids = (first: number, length: number) =>
    log.page(KINDS, first, length).map((one) => one.ref?.checkpointId);
  expect(ids(0, 10)).toEqual(["2", "3", "5", "1", "4"]);
  expect(ids(0, 2)).toEqual(["2", "3"]);
  expect(ids(2, 2)).toEqual(["5", "1"]);
  expect(ids(4, 2)).toEqual(["4"]);
  expect(log.page([Verdict.PASS], 1, 5).map((one) => one.ref?.checkpointId)).toEqual(["4"]);
  expect(log.size).toBe(5);
});

test("an outcome is good only if everything was compared", () => {
  const good = outcomeOf(logOf(), total({ ok: true, passed: 3n }));
  expect(good).toMatchObject({ kind: "good", title: "3 of 3 hashes verified", flush: false });

  const waits = outcomeOf(
    logOf(verdict("1", Verdict.UNVERIFIED)),
    total({ ok: true, passed: 3n, unverified: 1n }),
  );
  expect(waits).toMatchObject({ title: "Not everything is certified yet", flush: true });

  const none = outcomeOf(logOf(verdict("1", Verdict.UNVERIFIED)), total({ unverified: 1n }));
  expect(none).toMatchObject({ kind: "warn", title: "Nothing is certified yet" });

  const empty = outcomeOf(logOf(), total({ retracted: 2n }));
  expect(empty).toMatchObject({ kind: "warn", flush: false });

  const failed = outcomeOf(logOf(), total({ passed: 1n, failed: 1n, unverified: 1n }));
  expect(failed).toMatchObject({ kind: "bad", flush: false });

  const broken = outcomeOf(logOf(), total({ passed: 3n, chainDetail: "the catalog differs" }));
  expect(broken.kind).toBe("bad");
  expect(broken.sentences.join(" ")).toContain("the catalog differs");

  const edited = outcomeOf(logOf(), total({ passed: 3n, journalDetails: ["a row", "another"] }));
  expect(edited.kind).toBe("bad");
  expect(edited.sentences[0]).toContain("The journal of the server is damaged: a row. The report");
});

test.each([
  [{ passed: 53n }, "53 of 53 hashes verified"],
  [{ passed: 1n, retracted: 4n }, "1 of 1 hash verified"],
  [{ passed: 51n, unverified: 2n }, "51 of 53 hashes verified, 2 not certified"],
  [{ unverified: 2n }, "Nothing is certified yet"],
  [{ passed: 52n, failed: 1n }, "Verification failed: 52 of 53 hashes verified"],
])("the seal of %o is %s", (numbers, text) => {
  const all = total(numbers);
  expect(sealText(outcomeOf(logOf(), all), all)).toBe(text);
});

test("a gap is told from what only waits", () => {
  const log = logOf(
    verdict("1", Verdict.UNVERIFIED, "the blob store rejects it"),
    verdict("2", Verdict.UNVERIFIED),
  );
  const said = outcomeOf(log, total({ unverified: 2n })).sentences;
  expect(said).toHaveLength(2);
  expect(said[0]).toContain("1 checkpoint changed since it was last certified");
  expect(said[1]).toContain("1 checkpoint could not be stored");
});

test("a chain counts each segment and blob once", () => {
  const entry = (segment: number, writes: number[] = []) =>
    create(ManifestEntrySchema, {
      segment: location("b", segment, "x"),
      writes: writes.map((one) => location("c", one)),
    });
  const chain = chainOf([entry(1), entry(1, [3]), entry(2, [3])]);
  expect(chain.segments.map(({ checkpoints, writes }) => [checkpoints, writes])).toEqual([
    [2, 0],
    [0, 2],
    [1, 0],
  ]);
  expect(chain.blobs).toEqual([
    { blobId: "b", segments: 2, bytes: 20n },
    { blobId: "c", segments: 1, bytes: 10n },
  ]);
  expect(chain.bytes).toBe(30n);
});

test("commands have the root, its hash and the source", () => {
  const sha256 = `--sha256 ${"01".repeat(32)}`;
  const parts = (command: string) => command.split(" \\\n  ");
  expect(parts(auditCatalog(location("-b", 1, "m"), "my thread", "walrus"))).toEqual([
    "tuskpoint audit catalog",
    "--identifier=m",
    sha256,
    "--thread='my thread'",
    "--aggregator AGGREGATOR_URL",
    "--report report.json",
    "-- -b",
  ]);
  expect(parts(auditManifest(location("b"), "directory"))).toEqual([
    "tuskpoint audit manifest",
    sha256,
    "--blob-dir BLOB_DIR",
    "--report report.json",
    "b",
  ]);
  expect(parts(recover(location("-b", 1, "m"), "s3"))).toEqual([
    "tuskpoint-server recover",
    "--data-dir NEW_DIR",
    "--blobs BUCKET_URL",
    "--catalog=-b/m",
  ]);
});

test("an agent's name cannot become a command or act on the terminal", () => {
  expect(quoted("report-7")).toBe("report-7");
  expect(quoted("")).toBe("''");
  expect(quoted("it's; rm -rf $HOME")).toBe(`'it'\\''s; rm -rf $HOME'`);
  expect(quoted("a\u001b[201~\nrm '\\")).toBe("$'a\\x1b[201~\\x0arm \\x27\\x5c'");
  expect(quoted("\u202ex")).toBe("$'\\xe2\\x80\\xaex'");
});

const sources = (log: VerdictLog, counts: object) => ({
  threadId: "t\u0007",
  run: {
    phase: "done" as const,
    log,
    total: total(counts),
    problem: undefined,
    started: new Date(Date.UTC(2026, 0, 2, 3, 4, 5)),
    finished: new Date(Date.UTC(2026, 0, 2, 3, 4, 6)),
  },
  info: create(GetServerInfoResponseSchema, {
    version: "0.1.0",
    journalId: "j1",
    blobBackend: "directory",
  }),
  manifest: create(GetManifestResponseSchema, {
    incarnation: 2n,
    generation: 1n,
    seq: 9n,
    catalog: location("cat", 7),
    certifyTime: timestampFromMs(Date.UTC(2026, 0, 1)),
  }),
  address: "http://127.0.0.1:7391",
  check: "tuskpoint audit catalog cat",
});

test("a report has what the page shows", () => {
  const log = logOf(verdict("1", Verdict.FAIL, "the hash differs"), verdict("2", Verdict.PASS));
  const report = reportOf(sources(log, { passed: 1n, failed: 1n }));
  expect(report).toMatchObject({
    kind: "tuskpoint-verification",
    thread_id: "t\u0007",
    incarnation: 2,
    started: "2026-01-02T03:04:05.000Z",
    server: { version: "0.1.0", journal_id: "j1" },
    catalog: { blob_id: "cat", sha256: "07".repeat(32), certify_time: "2026-01-01T00:00:00.000Z" },
    result: "FAILED",
    checkpoints: { passed: 1, failed: 1, unverified: 0, retracted: 0 },
    problems: [
      {
        checkpoint_id: "1",
        verdict: "FAIL",
        detail: "the hash differs",
        location: { sha256: "01".repeat(32) },
        actual_sha256: "02".repeat(32),
      },
    ],
  });
  const text = report ? textOf(report) : "";
  expect(text).toContain("Verification of thread t\\u0007: FAILED");
  expect(text).toContain(`recorded ${"01".repeat(32)}`);
  expect(text).toContain(`found    ${"02".repeat(32)}`);
  expect(text).toContain("tuskpoint audit catalog cat");
  expect(text).not.toContain("\u0007");
});

test("each outcome has a result of its own", () => {
  const of = (log: VerdictLog, counts: object) => reportOf(sources(log, counts))?.result;
  expect(of(logOf(), { ok: true, passed: 1n })).toBe("VERIFIED");
  expect(of(logOf(), { passed: 1n, unverified: 1n })).toBe("NOT_ALL_CERTIFIED");
  expect(of(logOf(), {})).toBe("NOTHING_TO_VERIFY");
  expect(of(logOf(), { passed: 1n, chainDetail: "broken" })).toBe("FAILED");
  expect(of(logOf(), { passed: 1n, journalDetails: ["a row"] })).toBe("FAILED");
});

test("a report has what is wrong in the journal", () => {
  const report = reportOf(sources(logOf(), { passed: 1n, journalDetails: ["a row\u0007", "b"] }));
  expect(report?.journal_details).toEqual(["a row\u0007", "b"]);
  expect(report && textOf(report)).toContain("rows         2 problems\n  a row\\u0007\n  b\n");
});

test("a long list of problems is cut in the text and whole in the document", () => {
  const failed = Array.from({ length: 150 }, (_, index) => verdict(`${index}`, Verdict.FAIL));
  const report = reportOf(sources(logOf(...failed), { failed: 150n }));
  expect(report?.problems).toHaveLength(150);
  expect(report && textOf(report)).toContain("and 130 more, listed in the JSON");
});

test("a run that did not end has no report", () => {
  const whole = sources(logOf(), {});
  expect(reportOf({ ...whole, run: { ...whole.run, total: undefined } })).toBeUndefined();
});
