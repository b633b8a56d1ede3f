/** The progress of an adoption, from the frames of `AdoptHandoff`. */
import { ConnectError } from "@connectrpc/connect";
import {
  type AdoptHandoffResponse,
  type Adoption,
  AdoptStage,
} from "@contract/handoff_service_pb.js";
import { ErrorInfoSchema } from "@google/rpc/error_details_pb.js";

/** The stages in order, each with its text once it is done. */
export const STAGES: [AdoptStage, string][] = [
  [AdoptStage.FETCHING, "Fetching the bytes from the blob store"],
  [AdoptStage.FETCHED, "All bytes have arrived"],
  [AdoptStage.VERIFIED, "The bytes have the hash of the descriptor"],
  [AdoptStage.ADOPTED, "The new thread exists"],
];

export interface Progress {
  /** The stage in the last frame; undefined: no frame yet. */
  stage: AdoptStage | undefined;
  fetchedBytes: bigint;
  adoption: Adoption | undefined;
}

export const BEGINNING: Progress = { stage: undefined, fetchedBytes: 0n, adoption: undefined };

/** Return the progress after one more frame. */
export function advance(before: Progress, frame: AdoptHandoffResponse): Progress {
  return {
    stage: frame.stage,
    fetchedBytes:
      frame.fetchedBytes > before.fetchedBytes ? frame.fetchedBytes : before.fetchedBytes,
    adoption: frame.adoption ?? before.adoption,
  };
}

/**
 * Return the progress at a failure: bytes with another hash have arrived, whatever the frames
 * reported.
 */
export function failedAt(progress: Progress, hashes: ReturnType<typeof hashesOf>): Progress {
  return hashes ? { ...progress, stage: AdoptStage.FETCHED } : progress;
}

/** Return whether a stage is done, is running, failed, or comes later. */
export function stateOf(
  stage: AdoptStage,
  reached: AdoptStage | undefined,
  failed: boolean,
): "done" | "now" | "failed" | "later" {
  // The stage "fetching" starts with its first frame and ends with the next stage.
  const done = stage === AdoptStage.FETCHING ? AdoptStage.FETCHED : stage;
  if (reached !== undefined && reached >= done) {
    return "done";
  }
  const next = reached === undefined ? AdoptStage.FETCHING : reached + (reached === 1 ? 0 : 1);
  if (stage !== next) {
    return "later";
  }
  return failed ? "failed" : "now";
}

/** Return the two hashes of bytes that do not match the descriptor; undefined: another error. */
export function hashesOf(error: unknown): { expected: string; actual: string } | undefined {
  const info = ConnectError.from(error).findDetails(ErrorInfoSchema)[0];
  const { expected, actual } = info?.metadata ?? {};
  return info?.reason === "BLOB_HASH_MISMATCH" && expected && actual
    ? { expected, actual }
    : undefined;
}
