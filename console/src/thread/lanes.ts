/**
 * The graph beside a list of checkpoints, newest first: the lane of each checkpoint, and the
 * passing lines.
 *
 * A lane leads from a checkpoint down to its parent. Where several lanes lead to one parent, they
 * join at the parent: the thread was continued from it more than once. The cost is one pass over
 * the rows, times the lanes that are open at once.
 */

export interface Knot {
  /** Unique in the list. */
  key: string;
  /** Key of the checkpoint's parent; undefined at the root. The list may not have the parent. */
  parent: string | undefined;
  /** Whether the checkpoint did not follow its parent by a step: the parent ran its subgraph. */
  aside: boolean;
}

export interface Line {
  lane: number;
  /** Whether the line is dashed. */
  aside: boolean;
}

export interface LaneRow {
  lane: number;
  /** Lines that pass by, from top to bottom. */
  passing: Line[];
  /** Lines that end here, from the top of their lane. */
  arriving: Line[];
  /** The line to the parent, down in its own lane; undefined: the list does not have the parent. */
  leaving: Line | undefined;
}

interface Open {
  parent: string;
  aside: boolean;
}

/** Lay out rows that are sorted newest first. A parent above its child counts as missing. */
export function lanesOf(knots: readonly Knot[]): LaneRow[] {
  const places = new Map(knots.map(({ key }, index) => [key, index]));
  const open: (Open | undefined)[] = [];
  return knots.map(({ key, parent, aside }, index) => {
    const arriving: Line[] = [];
    const passing: Line[] = [];
    open.forEach((one, lane) => {
      if (one) {
        (one.parent === key ? arriving : passing).push({ lane, aside: one.aside });
      }
    });
    for (const { lane } of arriving) {
      open[lane] = undefined;
    }
    const lane = arriving[0]?.lane ?? freeLane(open);
    const below = parent !== undefined && (places.get(parent) ?? -1) > index;
    open[lane] = below ? { parent, aside } : undefined;
    return { lane, passing, arriving, leaving: below ? { lane, aside } : undefined };
  });
}

function freeLane(open: readonly unknown[]): number {
  const free = open.indexOf(undefined);
  return free < 0 ? open.length : free;
}
