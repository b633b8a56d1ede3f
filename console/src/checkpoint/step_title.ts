/** What a checkpoint is called: by the nodes that ran, else by what else led to it. Pure. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import { oneLine, short } from "../words.ts";
import { metadataOf } from "./describe.ts";

/** What led to a checkpoint of LangGraph if no node ran, by `source` in its metadata. */
const SOURCES = new Map([
  ["input", "Input"],
  ["update", "Update"],
  ["fork", "Fork"],
]);

/**
 * Return the name of a checkpoint: the nodes that ran in the step, else what led to the checkpoint,
 * else the summary, the number of the step, or the ID. Needs `VIEW_STEP`.
 */
export function titleOf(checkpoint: Checkpoint): string {
  const { step, summary, ref } = checkpoint;
  const { source, step: number } = metadataOf(checkpoint);
  if (step && step.nodes.length > 0) {
    return oneLine(step.nodes.join(", "));
  }
  // LangGraph counts the steps; another framework may use the word `source` for something else.
  const event = number ? SOURCES.get(source) : undefined;
  const starts = source === "loop" && number === "0" && step?.changedChannels.length;
  return (
    event ??
    (starts ? "Start" : undefined) ??
    (oneLine(summary) ||
      (number ? `Step ${oneLine(number)}` : oneLine(short(ref?.checkpointId ?? ""))))
  );
}

/** Return the nodes that lead to a subgraph, such as `planner › critic`; empty: the root graph. */
export function graphName(checkpointNs: string): string {
  return checkpointNs
    .split("|")
    .map((part) => oneLine(part.split(":")[0] ?? "", 40))
    .join(" › ");
}
