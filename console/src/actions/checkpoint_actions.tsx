/** What can be done from a checkpoint: fork, roll back, label, hand off, edit, compare. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import type { Thread } from "@contract/thread_pb.js";

interface CheckpointActionsProps {
  /** The checkpoint, in its JSON view. */
  checkpoint: Checkpoint;
  thread: Thread | undefined;
}

export function CheckpointActions(_: CheckpointActionsProps) {
  return <div class="actions" />;
}
