/** One checkpoint: what happened, its state, its writes, and where it is stored. */
import type { Thread } from "@contract/thread_pb.js";
import type { Ref } from "../links.ts";

interface CheckpointPanelProps {
  reference: Ref;
  /** Its thread; undefined while it is loaded. */
  thread: Thread | undefined;
  /** The tab that is shown; empty: the first. */
  tab: string;
  /** Changes when the checkpoint may have changed, as the watch of the thread tells. */
  version: number;
}

export function CheckpointPanel({ reference }: CheckpointPanelProps) {
  return <p>{reference.checkpointId}</p>;
}
