/**
 * Facts to lanes, bars and gaps, without pixels.
 *
 * A bar per step leads from its parent's save to its own; an input, an update and a rollback are
 * points. Whatever the parents and times of the checkpoints are, each checkpoint gets exactly one
 * bar. The cost is n log n for n checkpoints.
 */
import { type Break, breaksOf } from "./breaks.ts";
import { type Chain, standingOf } from "./chains.ts";
import type { Fact } from "./facts.ts";
import { type Gap, gapsOf } from "./gaps.ts";
import { type LaneKind, nestedLanesOf } from "./nesting.ts";

export interface Bar {
  fact: Fact;
  /** Index of the row. */
  row: number;
  /** Time of the parent's save; the own time if the parent is missing or later. */
  start: number;
  end: number;
  /**
   * A step whose predecessor asked a person includes the wait for the answer. A step is torn if one
   * run began the step and another run ended it.
   */
  kind: "step" | "wait" | "torn" | "point";
  /** Of a torn step, the break; its first part is work that was not saved. */
  torn: Break | undefined;
  /** Whether the checkpoint leads to the state that stands; else it was left for a branch. */
  stands: boolean;
}

/** What is known to come after the last checkpoint of a lane. */
export interface Tail {
  after: Bar;
  /** Whether a task failed or asks; else the graph may be running. */
  kind: "failure" | "question" | "next";
  /** Whether the question is one of a subgraph, which has a tail of its own. */
  isInner: boolean;
}

/** A line along a chain, and from the checkpoint that called it, or that it branches off. */
export interface Link {
  /** Where the line begins: the end of `from`, or the first save if that is earlier. */
  begin: number;
  /** Time of the last save. */
  end: number;
  from: Bar | undefined;
}

export interface Row {
  kind: LaneKind;
  name: string;
  depth: number;
  colour: number;
  /** Sorted by end. */
  bars: Bar[];
  /** The earliest start of each bar and the bars after it. */
  earliest: Float64Array;
  /** Sorted by their beginnings. */
  links: Link[];
}

export interface Layout {
  rows: Row[];
  /** Sorted by end. */
  bars: Bar[];
  tails: Tail[];
  gaps: Gap[];
  breaks: Break[];
  /** First and last time. */
  from: number;
  to: number;
  find: (key: string | undefined) => Bar | undefined;
}

export function layoutOf(facts: readonly Fact[]): Layout {
  const byKey = new Map(facts.map((fact) => [fact.key, fact]));
  const breaks = breaksOf(facts);
  const standing = standingOf(facts);
  const askers = askersOf(facts);
  const barOf = new Map<string, Bar>();
  const lanes = nestedLanesOf(facts);
  const rows = lanes.map(({ kind, name, depth, colour, chains }, row): Row => {
    const bars = chains.flatMap((chain) =>
      chain.facts.map((fact) => barFor(fact, row, byKey, standing)),
    );
    for (const bar of bars) {
      barOf.set(bar.fact.key, bar);
    }
    bars.sort(byEnd);
    return { kind, name, depth, colour, bars, earliest: earliestOf(bars), links: [] };
  });
  lanes.forEach(({ chains }, index) => {
    const row = rows[index];
    if (row) {
      row.links = linksOf(chains, barOf);
    }
  });
  const bars = rows.flatMap((row) => row.bars).sort(byEnd);
  tear(bars, breaks);
  return {
    rows,
    bars,
    tails: tailsOf(
      lanes.flatMap(({ chains }) => chains),
      barOf,
      askers,
    ),
    gaps: gapsOf(bars, breaks),
    breaks,
    from: bars.reduce((first, { start }) => Math.min(first, start), bars[0]?.end ?? 0),
    to: bars.at(-1)?.end ?? 0,
    find: (key) => (key === undefined ? undefined : barOf.get(key)),
  };
}

function byEnd(one: Bar, other: Bar): number {
  return one.end - other.end || one.start - other.start || (one.fact.id < other.fact.id ? -1 : 1);
}

function barFor(
  fact: Fact,
  row: number,
  byKey: ReadonlyMap<string, Fact>,
  standing: ReadonlySet<Fact>,
): Bar {
  const { at, origin, parent } = fact;
  const before = parent === undefined ? undefined : byKey.get(parent);
  const start = origin === "step" && before ? Math.min(before.at, at) : at;
  const waited = before !== undefined && before.questions.length > 0;
  const kind = origin !== "step" ? "point" : waited ? "wait" : "step";
  return { fact, row, start, end: at, kind, torn: undefined, stands: standing.has(fact) };
}

function earliestOf(bars: readonly Bar[]): Float64Array {
  const earliest = new Float64Array(bars.length);
  let least = Number.POSITIVE_INFINITY;
  for (let index = bars.length - 1; index >= 0; index -= 1) {
    least = Math.min(least, bars[index]?.start ?? least);
    earliest[index] = least;
  }
  return earliest;
}

function linksOf(chains: readonly Chain[], barOf: ReadonlyMap<string, Bar>): Link[] {
  return chains
    .map(({ from, begin, end }) => ({ begin, end, from: from && barOf.get(from.key) }))
    .sort((one, other) => one.begin - other.begin);
}

/** Mark the steps that one run began and another ended. */
function tear(bars: readonly Bar[], breaks: readonly Break[]): void {
  const sorted = [...breaks].sort((one, other) => one.from - other.from);
  for (const bar of bars) {
    if (bar.kind === "step") {
      // The first break that begins within the bar; breaks follow each other.
      let [low, high] = [0, sorted.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        [low, high] = (sorted[middle]?.from ?? 0) < bar.start ? [middle + 1, high] : [low, middle];
      }
      const first = sorted[low];
      if (first && first.to <= bar.end) {
        bar.kind = "torn";
        bar.torn = first;
      }
    }
  }
}

/**
 * Return what comes after the last checkpoint of each chain. Only the state that stands may be
 * running: the end of the root graph, and the ends of the subgraphs that this end called.
 */
function tailsOf(
  chains: readonly Chain[],
  barOf: ReadonlyMap<string, Bar>,
  askers: ReadonlyMap<string, Fact>,
): Tail[] {
  const open = new Set<Fact>();
  return chains.flatMap(({ ns, facts, from }): Tail[] => {
    const last = facts.at(-1);
    const bar = last && barOf.get(last.key);
    if (!bar) {
      return [];
    }
    const mayRun = bar.stands && (from && from.ns !== ns ? open.has(from) : ns === "");
    if (mayRun) {
      open.add(last);
    }
    if (last.failures.length > 0) {
      return [{ after: bar, kind: "failure", isInner: false }];
    }
    const questions = last.questions.filter(({ answered }) => !answered);
    if (questions.length > 0) {
      const isInner = questions.every(({ interruptId }) => isOfOther(askers, interruptId, last));
      return [{ after: bar, kind: "question", isInner }];
    }
    return mayRun && last.next.length > 0 ? [{ after: bar, kind: "next", isInner: false }] : [];
  });
}

/** Return whether another checkpoint asked the question. */
function isOfOther(askers: ReadonlyMap<string, Fact>, interruptId: string, fact: Fact): boolean {
  return (askers.get(interruptId) ?? fact) !== fact;
}

/**
 * Return the checkpoint that asked each question: a question of a subgraph is also a question of the
 * checkpoints around the subgraph.
 */
function askersOf(facts: readonly Fact[]): Map<string, Fact> {
  const askers = new Map<string, Fact>();
  for (const fact of facts) {
    for (const { interruptId } of fact.questions) {
      const known = askers.get(interruptId);
      if (interruptId && (!known || fact.ns.length > known.ns.length)) {
        askers.set(interruptId, fact);
      }
    }
  }
  return askers;
}
