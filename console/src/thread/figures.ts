/** Figures of a thread: how long its steps took, and the tokens that they used. Pure. */
import { elapsedMs } from "../words.ts";
import type { Entry } from "./log.ts";

/**
 * Return the time from the first to the last save, in milliseconds; undefined: fewer than two
 * checkpoints.
 */
export function wholeTimeMs(entries: readonly Entry[]): number | undefined {
  const times = entries.flatMap(({ checkpoint: { createTime } }) => createTime ?? []);
  const [first] = times;
  if (!first || times.length < 2) {
    return undefined;
  }
  const sinceFirst = times.map((time) => elapsedMs(first, time));
  const [least, most] = sinceFirst.reduce(
    ([low, high], ms) => [Math.min(low, ms), Math.max(high, ms)],
    [0, 0],
  );
  return most - least;
}

/**
 * Return the tokens that messages of the root graph report; undefined: no message reports tokens.
 * Messages of a subgraph would count twice: the graph around gets them from the subgraph.
 */
export function tokensOf(
  entries: readonly Entry[],
): { inputTokens: bigint; outputTokens: bigint } | undefined {
  const told = entries.flatMap(({ checkpointNs, checkpoint: { step } }) =>
    checkpointNs === "" && step?.tokens ? [step.tokens] : [],
  );
  return told.length === 0
    ? undefined
    : {
        inputTokens: told.reduce((sum, { inputTokens }) => sum + inputTokens, 0n),
        outputTokens: told.reduce((sum, { outputTokens }) => sum + outputTokens, 0n),
      };
}
