import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  AdoptHandoffResponseSchema,
  AdoptStage,
  HandoffDescriptorSchema,
} from "@contract/handoff_service_pb.js";
import { ErrorInfoSchema } from "@google/rpc/error_details_pb.js";
import { expect, test } from "vitest";
import {
  advance,
  BEGINNING,
  failedAt,
  hashesOf,
  STAGES,
  stateOf,
} from "../src/handoff/adoption.ts";
import {
  DescriptorProblem,
  readDescriptor,
  signersIn,
  writeDescriptor,
} from "../src/handoff/descriptor.ts";
import { qrCode } from "../src/handoff/qr_code.tsx";

const HEX = "0123456789abcdef".repeat(4);
const DESCRIPTOR = create(HandoffDescriptorSchema, {
  source: "t:c",
  threadId: "t",
  checkpointId: "c",
  blobId: "b",
  blobSha256: HEX,
  summary: "Step 3.",
});

function changed(change: Record<string, unknown>): string {
  return JSON.stringify({ ...JSON.parse(writeDescriptor(DESCRIPTOR)), ...change });
}

test("a descriptor has the keys that all clients write, and further ones only if they are set", () => {
  expect(Object.keys(JSON.parse(writeDescriptor(DESCRIPTOR)))).toEqual([
    "source",
    "thread_id",
    "checkpoint_id",
    "blob_id",
    "blob_sha256",
    "to_agent",
    "summary",
  ]);
  const signed = create(HandoffDescriptorSchema, {
    ...DESCRIPTOR,
    signer: HEX,
    signature: HEX + HEX,
    sealedKey: "AAAA",
  });
  const text = writeDescriptor(signed);
  expect(JSON.parse(text)["sealed_key"]).toBe("AAAA");
  expect(create(HandoffDescriptorSchema, readDescriptor(text))).toEqual(signed);
});

test("a descriptor that cannot be right is refused, and the problem names the key", () => {
  const problems: [string, RegExp][] = [
    ["{nope", /^It is not JSON/],
    ["[]", /not a JSON object/],
    ["{}", /lacks source, thread_id/],
    [changed({ extra: "x" }), /no key "extra"/],
    [changed({ blob_sha256: "abc" }), /blob_sha256 must be 64/],
    [changed({ blob_sha256: HEX.toUpperCase() }), /blob_sha256 must be 64/],
    [changed({ blob_id: "" }), /blob_id is empty/],
    [changed({ summary: 7 }), /summary must be text/],
    [changed({ thread_id: "other" }), /joined by a colon/],
    [changed({ signer: HEX }), /must come together/],
    [changed({ key: "ZZ" }), /key must be 64/],
  ];
  for (const [text, problem] of problems) {
    expect(() => readDescriptor(text)).toThrow(DescriptorProblem);
    expect(() => readDescriptor(text)).toThrow(problem);
  }
});

test("signers are read however they are separated", () => {
  const other = HEX.replace("0", "f");
  expect(signersIn(` ${HEX},\n${other} `)).toEqual([HEX, other]);
  expect(signersIn("")).toEqual([]);
  expect(() => signersIn("ABC")).toThrow(DescriptorProblem);
});

test("the stages of an adoption are done one after another", () => {
  const states = (reached: AdoptStage | undefined, failed = false) =>
    STAGES.map(([stage]) => stateOf(stage, reached, failed));
  expect(states(undefined)).toEqual(["now", "later", "later", "later"]);
  expect(states(AdoptStage.FETCHING)).toEqual(["now", "later", "later", "later"]);
  expect(states(AdoptStage.FETCHED)).toEqual(["done", "done", "now", "later"]);
  expect(states(AdoptStage.VERIFIED, true)).toEqual(["done", "done", "done", "failed"]);
  expect(states(AdoptStage.ADOPTED)).toEqual(["done", "done", "done", "done"]);
});

test("the bytes that were fetched stay known in later frames", () => {
  const frame = (stage: AdoptStage, fetchedBytes = 0n) =>
    create(AdoptHandoffResponseSchema, { stage, fetchedBytes });
  const progress = [frame(AdoptStage.FETCHING, 7n), frame(AdoptStage.VERIFIED)].reduce(
    advance,
    BEGINNING,
  );
  expect(progress).toEqual({ stage: AdoptStage.VERIFIED, fetchedBytes: 7n, adoption: undefined });
});

test("bytes with another hash fail where the hash is checked", () => {
  const metadata = { expected: "aa", actual: "bb" };
  const failure = (reason: string) =>
    new ConnectError("no", Code.DataLoss, undefined, [
      { desc: ErrorInfoSchema, value: { reason, metadata } },
    ]);
  const error = failure("BLOB_HASH_MISMATCH");
  expect(hashesOf(failure("DIGEST_MISMATCH"))).toBeUndefined();
  expect(hashesOf(error)).toEqual({ expected: "aa", actual: "bb" });
  expect(hashesOf(new Error("other"))).toBeUndefined();
  const at = { ...BEGINNING, stage: AdoptStage.FETCHING };
  expect(failedAt(at, hashesOf(error)).stage).toBe(AdoptStage.FETCHED);
  expect(failedAt(at, undefined).stage).toBe(AdoptStage.FETCHING);
});

test("a descriptor fits a QR code, and a text that does not has none", () => {
  const code = qrCode(writeDescriptor(DESCRIPTOR));
  expect(code?.path).toMatch(/^M4 4h1v1h-1z/);
  expect(code?.size).toBeGreaterThan(40);
  expect(qrCode("x".repeat(2953))).toBeDefined();
  expect(qrCode("é".repeat(1477))).toBeUndefined();
});
