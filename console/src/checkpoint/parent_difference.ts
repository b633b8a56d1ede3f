/** The changes of a checkpoint against its parent, as the server compares them. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import type { DiffCheckpointsResponse } from "@contract/thread_service_pb.js";
import type { Ref } from "../links.ts";
import { threads } from "../server/calls.ts";
import { type Loaded, useLoad } from "../server/loading.ts";

/** Return the parent of a checkpoint; undefined at the root. */
export function parentOf({ ref, parentCheckpointId }: Checkpoint): Ref | undefined {
  if (!ref || !parentCheckpointId) {
    return undefined;
  }
  const { threadId, checkpointNs } = ref;
  return { threadId, checkpointNs, checkpointId: parentCheckpointId };
}

/** Compare a checkpoint with its parent; without a parent, or unless `wanted`, load nothing. */
export function useParentDifference(
  checkpoint: Checkpoint,
  wanted = true,
): Loaded<DiffCheckpointsResponse | undefined> {
  const { ref } = checkpoint;
  const from = parentOf(checkpoint);
  return useLoad(
    async (signal) =>
      wanted && from && ref ? threads.diffCheckpoints({ from, to: ref }, { signal }) : undefined,
    [wanted, from, ref?.threadId, ref?.checkpointNs, ref?.checkpointId],
  );
}

/** Return the names of the channels that differ. */
export function changedChannels(difference: DiffCheckpointsResponse | undefined): string[] {
  return difference?.changes.map(({ channel }) => channel) ?? [];
}
