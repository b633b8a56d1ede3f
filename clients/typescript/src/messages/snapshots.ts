/** Snapshots: the record. Pure. */

import { ServerError } from "../errors.js";
import type { Snapshot } from "../gen/tuskpoint/v1/snapshot_service_pb.js";
import { decodeObject, type JsonObject } from "./json.js";
import { moment, referenceOf, type Reference } from "./records.js";

/** Several threads captured together. */
export interface SnapshotRecord {
  /** ID of the snapshot; later snapshots sort after it. */
  readonly snapshotId: string;
  /** Session of the application; may be empty. */
  readonly sessionId: string;
  /** Host that the application ran on; may be empty. */
  readonly hostname: string;
  /** Directory that the application ran in; may be empty. */
  readonly workingDirectory: string;
  /** The metadata that was saved with the snapshot. */
  readonly metadata: JsonObject;
  /** The captured checkpoints, by thread. */
  readonly members: readonly Reference[];
  /** Time of the capture. */
  readonly created: Date | undefined;
}

/**
 * Return a snapshot as a record.
 *
 * @throws ServerError - The message is missing.
 */
export function snapshotRecord(message: Snapshot | undefined): SnapshotRecord {
  if (message === undefined) {
    throw new ServerError("protocol error: an answer without the snapshot; please report this", {
      status: "INTERNAL",
    });
  }
  const { snapshotId, sessionId, hostname, workingDirectory } = message;
  return {
    snapshotId,
    sessionId,
    hostname,
    workingDirectory,
    metadata: decodeObject(message.metadataJson),
    members: message.members.map(referenceOf),
    created: moment(message.createTime),
  };
}
