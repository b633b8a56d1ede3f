/** What a checkpoint's tasks ask a person, each with a form for the answer. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";

interface InterruptsProps {
  /** The checkpoint, in its JSON view. */
  checkpoint: Checkpoint;
}

export function Interrupts(_: InterruptsProps) {
  return null;
}
