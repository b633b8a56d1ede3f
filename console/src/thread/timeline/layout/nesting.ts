/**
 * The lanes of a timeline: the root graph, below it a lane for each run of a subgraph, and a lane
 * for each branch that was left.
 *
 * Lanes are nested under the lane that called them. Runs of one subgraph that do not overlap share
 * a lane: a thread that calls a subgraph a thousand times in turn has one lane for it. The cost is
 * n log n for n checkpoints.
 */
import { type Chain, chainsOf } from "./chains.ts";
import type { Fact } from "./facts.ts";

export type LaneKind = "graph" | "subgraph" | "branch";

export interface Lane {
  kind: LaneKind;
  /** Name of the node that runs the subgraph; empty for the root graph. */
  name: string;
  depth: number;
  /** Index of a colour: the same for all lanes of a name. */
  colour: number;
  chains: Chain[];
  below: Lane[];
}

/** Return the lanes from top to bottom. */
export function nestedLanesOf(facts: readonly Fact[]): Lane[] {
  const colours = new Map<string, number>([["", 0]]);
  const lanes: Lane[] = [];
  const open = place(chainsOf(facts)).sort(later);
  for (let lane = open.pop(); lane; lane = open.pop()) {
    lane.colour = colours.get(lane.name) ?? colours.size;
    colours.set(lane.name, lane.colour);
    lanes.push(lane);
    for (const one of lane.below.sort(later)) {
      open.push(one);
    }
  }
  return lanes;
}

/** Sorts lanes by their first save, the latest first. */
function later(one: Lane, other: Lane): number {
  return (other.chains[0]?.facts[0]?.at ?? 0) - (one.chains[0]?.facts[0]?.at ?? 0);
}

/** Give each chain a lane, callers first; return the lanes that no lane called. */
function place(chains: readonly Chain[]): Lane[] {
  const called = calledBy(chains);
  const top: Lane[] = [];
  const left = new Set(chains);
  let level: { parent: Lane | undefined; chains: Chain[] }[] = [
    { parent: undefined, chains: called.get(undefined) ?? [] },
  ];
  while (left.size > 0) {
    for (const { chains: placed } of level) {
      for (const chain of placed) {
        left.delete(chain);
      }
    }
    const lanes = level.flatMap(({ parent, chains: placed }) => {
      const made = share(placed, parent);
      for (const lane of made) {
        (parent?.below ?? top).push(lane);
      }
      return made;
    });
    level = lanes.map((lane) => ({
      parent: lane,
      chains: lane.chains
        .flatMap((chain) => called.get(chain) ?? [])
        .filter((one) => left.has(one)),
    }));
    if (level.every((one) => one.chains.length === 0)) {
      // Subgraphs that call each other in a circle: one of them goes to the top.
      const [any] = left;
      level = [{ parent: undefined, chains: any ? [any] : [] }];
    }
  }
  return top;
}

/** Return the chains that each chain called, or that branch off it. */
function calledBy(chains: readonly Chain[]): Map<Chain | undefined, Chain[]> {
  const chainOf = new Map(chains.flatMap((chain) => chain.facts.map((fact) => [fact, chain])));
  const first = new Map<string, Chain>();
  for (const chain of chains) {
    if (!first.has(chain.ns)) {
      first.set(chain.ns, chain);
    }
  }
  return grouped(chains, (chain) => {
    const caller = chain.from ? chainOf.get(chain.from) : around(chain.ns, first);
    return caller === chain ? undefined : caller;
  });
}

/** Return the chain of the nearest namespace around `ns`, for a caller that is missing. */
function around(ns: string, first: ReadonlyMap<string, Chain>): Chain | undefined {
  let outer = ns;
  while (outer) {
    outer = outer.slice(0, Math.max(0, outer.lastIndexOf("|")));
    const chain = first.get(outer);
    if (chain) {
      return chain;
    }
  }
  return undefined;
}

/** Return lanes for chains that one lane called: chains that overlap get different lanes. */
function share(chains: readonly Chain[], parent: Lane | undefined): Lane[] {
  const groups = grouped(chains, (chain) => JSON.stringify([chain.isBranch, nameOf(chain.ns)]));
  return [...groups.values()].flatMap((group) =>
    apart(group).map((together): Lane => {
      const { ns = "", isBranch = false } = together[0] ?? {};
      return {
        kind: isBranch ? "branch" : ns ? "subgraph" : "graph",
        name: nameOf(ns),
        depth: parent ? parent.depth + 1 : 0,
        colour: 0,
        chains: together,
        below: [],
      };
    }),
  );
}

/** Divide chains into as few sets as possible, so that the chains of a set follow each other. */
function apart(chains: readonly Chain[]): Chain[][] {
  const sets: Chain[][] = [];
  const setOf = new Map<Chain, Chain[]>();
  const free: Chain[][] = [];
  const byEnd = [...chains].sort((one, other) => one.end - other.end);
  let ended = 0;
  for (const chain of [...chains].sort((one, other) => one.begin - other.begin)) {
    for (let next = byEnd[ended]; next && next.end <= chain.begin; next = byEnd[ended]) {
      const set = setOf.get(next);
      if (!set) {
        break; // it begins and ends at this time, and its turn comes
      }
      free.push(set);
      ended += 1;
    }
    const set = free.pop() ?? [];
    if (set.length === 0) {
      sets.push(set);
    }
    set.push(chain);
    setOf.set(chain, set);
  }
  return sets;
}

/** Return the name of the node that runs a subgraph, from a namespace such as `outer:1|inner:2`. */
function nameOf(ns: string): string {
  const last = ns.slice(ns.lastIndexOf("|") + 1);
  const colon = last.indexOf(":");
  return colon < 0 ? last : last.slice(0, colon);
}

function grouped<K, V>(values: readonly V[], keyOf: (value: V) => K): Map<K, V[]> {
  const groups = new Map<K, V[]>();
  for (const value of values) {
    const key = keyOf(value);
    const group = groups.get(key);
    if (group) {
      group.push(value);
    } else {
      groups.set(key, [value]);
    }
  }
  return groups;
}
