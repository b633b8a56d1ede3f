/**
 * The lines of checkpoints in a thread: each chain leads from parents to children, in one
 * namespace.
 *
 * The first child of a checkpoint continues its chain. Later children, after a rollback or a re-run,
 * begin a chain that branches off. Whatever the parents are, each checkpoint is in exactly one
 * chain: a parent that is missing, or that has a greater ID, does not hold its child.
 */
import type { Fact } from "./facts.ts";

export interface Chain {
  ns: string;
  /** Parents first; never empty. */
  facts: Fact[];
  /** The checkpoint that the chain branches off, or whose step called the subgraph. */
  from: Fact | undefined;
  /** Whether the chain branches off another chain of its namespace. */
  isBranch: boolean;
  /** Time of `from`, or of the first save if that is earlier. */
  begin: number;
  /** Time of the last save. */
  end: number;
}

export function chainsOf(facts: readonly Fact[]): Chain[] {
  const byKey = new Map(facts.map((fact) => [fact.key, fact]));
  const lastOf = new Map<Fact, Chain>();
  const chains: Chain[] = [];
  for (const fact of [...facts].sort((one, other) => (one.id < other.id ? -1 : 1))) {
    const parent = fact.parent === undefined ? undefined : byKey.get(fact.parent);
    const continued = parent && !fact.called ? lastOf.get(parent) : undefined;
    if (continued && parent) {
      lastOf.delete(parent);
      lastOf.set(fact, continued);
      continued.facts.push(fact);
      continued.end = Math.max(continued.end, fact.at);
    } else {
      const from = parent === fact ? undefined : parent;
      const chain: Chain = {
        ns: fact.ns,
        facts: [fact],
        from,
        isBranch: from !== undefined && !fact.called,
        begin: Math.min(from?.at ?? fact.at, fact.at),
        end: fact.at,
      };
      chains.push(chain);
      lastOf.set(fact, chain);
    }
  }
  return chains;
}

/**
 * Return the checkpoints that lead to the state that stands: from the greatest ID of the root graph
 * to its first checkpoint, and the same of each subgraph that one of them called.
 */
export function standingOf(facts: readonly Fact[]): Set<Fact> {
  const byKey = new Map(facts.map((fact) => [fact.key, fact]));
  const heads = new Map<string, Fact>();
  for (const fact of facts) {
    const head = heads.get(fact.ns);
    if (!head || head.id < fact.id) {
      heads.set(fact.ns, fact);
    }
  }
  const standing = new Set<Fact>();
  // Outer graphs first: their names are the beginnings of the names of inner graphs.
  const outerFirst = [...heads.values()].sort((one, other) => one.ns.length - other.ns.length);
  for (const head of outerFirst) {
    const path = new Set<Fact>();
    let fact: Fact | undefined = head;
    while (fact?.ns === head.ns && !path.has(fact)) {
      path.add(fact);
      fact = fact.parent === undefined ? undefined : byKey.get(fact.parent);
    }
    if (!fact || path.has(fact) || standing.has(fact)) {
      for (const one of path) {
        standing.add(one);
      }
    }
  }
  return standing;
}
