/** Converts between the inputs of dialogs and the arguments of calls. */

/** Return the thread IDs in a text, one per line; blank lines and repetitions are left out. */
export function threadsIn(lines: string): string[] {
  return [...new Set(lines.split("\n").filter((line) => line.trim() !== ""))];
}

/** Units of a retention, in seconds, smallest first. */
export const UNITS: [string, number][] = [
  ["minutes", 60],
  ["hours", 3600],
  ["days", 86_400],
];

/** Return a retention in the largest unit that divides it, or in seconds. */
export function inUnits(seconds: number): { amount: number; unit: number } {
  const unit = UNITS.findLast(([, size]) => seconds % size === 0)?.[1] ?? 1;
  return { amount: seconds / unit, unit };
}
