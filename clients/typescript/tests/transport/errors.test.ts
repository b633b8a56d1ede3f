/** Errors of every origin, by class. */

import { Code, ConnectError } from "@connectrpc/connect";
import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";

import {
  BY_REASON,
  BY_STATUS,
  DataLoss,
  DescriptorMismatch,
  errorClass,
  HashMismatch,
  InvalidRequest,
  NotFound,
  ServerError,
  TuskPointError,
  Unavailable,
  ValuesMissing,
  type StatusName,
} from "../../src/errors.js";
import { BadRequestSchema, ErrorInfoSchema } from "../../src/gen/google/rpc/error_details_pb.js";
import { CallErrorSchema, ErrorReason } from "../../src/gen/tuskpoint/v1/errors_pb.js";
import { fromCallError, fromConnectError } from "../../src/transport/status.js";

const TOLD = { "grpc-status": "1" };

describe("classes", () => {
  test("every reason and every status has one", () => {
    const reasons = Object.values(ErrorReason).filter((one) => typeof one === "string");
    expect(Object.keys(BY_REASON).sort()).toEqual(
      reasons.filter((one) => one !== "UNSPECIFIED").sort(),
    );
    expect(Object.keys(BY_STATUS)).toHaveLength(16);
  });

  test("the reason decides before the status, if it is known", () => {
    expect(errorClass("DATA_LOSS", "BLOB_HASH_MISMATCH")).toBe(HashMismatch);
    expect(errorClass("NOT_FOUND", "BLOB_NOT_FOUND")).toBe(NotFound);
    expect(errorClass("DATA_LOSS", "BLOB_NOT_FOUND")).toBe(DataLoss);
    expect(errorClass("NOT_FOUND", "OF_A_NEWER_SERVER")).toBe(NotFound);
    expect(errorClass("UNKNOWN", "toString")).toBe(ServerError);
  });

  test("have a name, and what is particular to them", () => {
    const mismatch = new DescriptorMismatch("m", {
      metadata: { field: "checkpoint_id", claimed: "a", found: "b" },
    });
    expect(mismatch.name).toBe("DescriptorMismatch");
    expect(mismatch).toBeInstanceOf(InvalidRequest);
    expect(mismatch).toBeInstanceOf(TuskPointError);
    expect([mismatch.field, mismatch.claimed, mismatch.found]).toEqual(["checkpoint_id", "a", "b"]);
    const hash = new HashMismatch("m", { metadata: { blob_id: "b", expected: "e", actual: "a" } });
    expect([hash.blobId, hash.expected, hash.actual]).toEqual(["b", "e", "a"]);
  });
});

describe("what the server answers", () => {
  test("keeps status, reason, metadata, fields and cause", () => {
    const violations = [{ field: "limit", description: "it is 100 at most" }];
    const cause = new ConnectError("the limit is too high", Code.InvalidArgument, TOLD, [
      {
        desc: ErrorInfoSchema,
        value: { reason: "INVALID_FIELD", metadata: { field: "limit" } },
      },
      { desc: BadRequestSchema, value: { fieldViolations: violations } },
    ]);

    const error = fromConnectError(cause, "here:1");

    expect(error).toBeInstanceOf(InvalidRequest);
    expect(error).toMatchObject({
      message: "the limit is too high (limit: it is 100 at most)",
      status: "INVALID_ARGUMENT",
      reason: "INVALID_FIELD",
      metadata: { field: "limit" },
      violations: [{ field: "limit", problem: "it is 100 at most" }],
      retryAfterMs: undefined,
      cause,
    });
  });

  test("inside a stream is reported the same way", () => {
    const error = fromCallError(
      create(CallErrorSchema, {
        code: 9,
        reason: ErrorReason.VALUES_MISSING,
        message: "send them",
        fieldViolations: [{ field: "plan", description: "not stored" }],
        retryAfter: durationFromMs(1_500),
      }),
    );

    expect(error).toBeInstanceOf(ValuesMissing);
    expect((error as ValuesMissing).channels).toEqual(["plan"]);
    expect(error).toMatchObject({ status: "FAILED_PRECONDITION", retryAfterMs: 1_500 });
  });

  test("a code or a reason that only a newer server knows becomes a ServerError", () => {
    const error = fromCallError(create(CallErrorSchema, { code: 77, reason: 999 as ErrorReason }));
    expect(error).toBeInstanceOf(ServerError);
    expect(error).toMatchObject({ status: "UNKNOWN", reason: "" });
  });
});

describe("what no server answers", () => {
  test.each<[string, Code, StatusName]>([
    ["a reset", Code.Aborted, "UNAVAILABLE"],
    ["a broken stream", Code.Internal, "UNAVAILABLE"],
    ["a dropped stream", Code.Canceled, "UNAVAILABLE"],
    ["a deadline", Code.DeadlineExceeded, "DEADLINE_EXCEEDED"],
    ["another kind of server", Code.Unimplemented, "UNIMPLEMENTED"],
    ["a message too large", Code.ResourceExhausted, "RESOURCE_EXHAUSTED"],
  ])("%s is not taken for what the server answers", (_, code, status) => {
    const error = fromConnectError(new ConnectError("hm", code), "here:1");
    expect(error.status).toBe(status);
    expect(error.reason).toBe("");
    expect(error.message).toContain("(hm)");
  });

  test("a status without a reason stays what the server says, but for a defect of gRPC itself", () => {
    const aborted = new ConnectError("", Code.Aborted, TOLD);
    const internal = new ConnectError("", Code.Internal, TOLD);
    expect(fromConnectError(aborted, "here:1").status).toBe("ABORTED");
    expect(fromConnectError(internal, "here:1")).toBeInstanceOf(Unavailable);
  });

  test("a certificate that is not trusted says what to do", () => {
    const cause = Object.assign(new Error("self-signed"), { code: "DEPTH_ZERO_SELF_SIGNED_CERT" });
    const error = fromConnectError(
      new ConnectError("", Code.Internal, undefined, undefined, cause),
      "here:1",
    );
    expect(error).toBeInstanceOf(Unavailable);
    expect(error.message).toContain("TUSKPOINT_CA_FILE");
  });

  test("a server without TLS is reported in one line, with what to do", () => {
    const text = "ssl3_get_record:wrong version number:ssl3_record.c:350:\n";
    const cause = Object.assign(new Error(text), { code: "ERR_SSL_WRONG_VERSION_NUMBER" });
    const error = fromConnectError(
      new ConnectError(text, Code.Internal, undefined, undefined, cause),
      "here:1",
    );
    expect(error).toBeInstanceOf(Unavailable);
    expect(error.message).toMatch(/^here:1 does not speak TLS: .*TUSKPOINT_TLS=0 \(.*\)$/);
  });

  test("a server that closes the connection may want TLS, or a certificate", () => {
    const error = fromConnectError(new ConnectError("closed", Code.Canceled), "here:1");
    expect(error.message).toMatch(
      /^here:1 closed the connection: .*TUSKPOINT_TLS.*TUSKPOINT_CERT_FILE/,
    );
  });
});
