/**
 * Where a run ended without its last save, and another run continued.
 *
 * Facts tell it, or nothing is claimed: a step belongs to another run than its predecessor by the
 * `run_id` of their metadata, the predecessor had next nodes, and the earlier run stopped neither
 * at a question nor at a failure, nor did it save anything after the other run began. The checkpoints
 * that start a fork or an adopted thread keep the runs of the thread that they were copied from; such
 * a run ended only if the run saved something here.
 */
import type { Fact } from "./facts.ts";

export interface Break {
  /** Last save of the run that ended, in milliseconds since the epoch. */
  from: number;
  /** First save of the run that continued. */
  to: number;
}

export function breaksOf(facts: readonly Fact[]): Break[] {
  const byKey = new Map(facts.map((fact) => [fact.key, fact]));
  const spans = spansOf(facts);
  const explained = stopped(facts, byKey);
  const copied = facts.reduce((last, { isStart, at }) => (isStart && at > last ? at : last), 0);
  const pairs = new Set<string>();
  return facts.flatMap((fact) => {
    const before = fact.parent === undefined ? undefined : byKey.get(fact.parent);
    const ended = before && spans.get(before.run);
    const continued = spans.get(fact.run);
    if (
      !ended ||
      !continued ||
      before.run === fact.run ||
      before.next.length === 0 ||
      explained.has(before.run) ||
      (fact.origin !== "step" && fact.origin !== "input") ||
      ended.last > continued.first ||
      ended.last <= copied
    ) {
      return [];
    }
    const pair = JSON.stringify([before.run, fact.run]);
    const told = pairs.has(pair);
    pairs.add(pair);
    return told ? [] : [{ from: ended.last, to: continued.first }];
  });
}

/** Return the times of the first and last save of each known run. */
function spansOf(facts: readonly Fact[]): Map<string, { first: number; last: number }> {
  const spans = new Map<string, { first: number; last: number }>();
  for (const { run, at } of facts) {
    const span = spans.get(run);
    if (span) {
      span.first = Math.min(span.first, at);
      span.last = Math.max(span.last, at);
    } else if (run) {
      spans.set(run, { first: at, last: at });
    }
  }
  return spans;
}

/** Return the runs that stopped at a question or a failure: they never continued from there. */
function stopped(facts: readonly Fact[], byKey: ReadonlyMap<string, Fact>): Set<string> {
  const wentOn = new Set<Fact>();
  for (const fact of facts) {
    const before = fact.parent === undefined ? undefined : byKey.get(fact.parent);
    if (before && before.run === fact.run) {
      wentOn.add(before);
    }
  }
  return new Set(
    facts
      .filter((fact) => fact.questions.length + fact.failures.length > 0 && !wentOn.has(fact))
      .map(({ run }) => run),
  );
}
