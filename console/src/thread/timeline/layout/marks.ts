/** Where the marks of checkpoints are in the timeline: each at the end of its bar. */
import { GitBranch, PencilLine } from "lucide";
import type { Mark } from "../../marks.ts";
import type { Bar } from "./layout.ts";

export interface PlacedMark extends Mark {
  at: Bar;
}

/** Marks by the key of their checkpoint, the most important first. */
export type Marks = ReadonlyMap<string, readonly PlacedMark[]>;

/** Marks of what the tree tells in the title of a row, and a point of the timeline does not. */
const ORIGINS: Partial<Record<Bar["fact"]["origin"], Mark>> = {
  update: { icon: PencilLine, text: "updated from outside", shown: "", kind: "warn" },
  copy: { icon: GitBranch, text: "continues an earlier checkpoint", shown: "", kind: "" },
};

/** Place the marks that each checkpoint has; `marksFor` takes the key of a checkpoint. */
export function placed(bars: readonly Bar[], marksFor: (key: string) => readonly Mark[]): Marks {
  const marks = new Map<string, PlacedMark[]>();
  for (const at of bars) {
    const { key, origin, isRollback } = at.fact;
    const own = isRollback ? undefined : ORIGINS[origin];
    const told = own ? [...marksFor(key), own] : marksFor(key);
    if (told.length > 0) {
      marks.set(key, told.map((mark) => ({ ...mark, at })).sort(weightier));
    }
  }
  return marks;
}

const WEIGHTS: Record<Mark["kind"], number> = { bad: 0, warn: 1, good: 2, "": 3 };

/** Sorts marks, the most important first. */
export function weightier(one: Mark, other: Mark): number {
  return WEIGHTS[one.kind] - WEIGHTS[other.kind];
}
