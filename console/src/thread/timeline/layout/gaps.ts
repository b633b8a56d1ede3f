/** Times in which nothing was saved: their texts, and long times folded to a fixed width. */
import { duration } from "../../../words.ts";
import type { Break } from "./breaks.ts";
import type { Bar } from "./layout.ts";

const FACTOR = 8; // times the usual time between two saves, from which a gap is folded
const USUAL = 0.9; // percentile of the times between two saves that is usual
const LEAST_MS = 10_000; // shorter gaps are never folded

export interface Gap {
  from: number;
  to: number;
  kind: "later" | "wait" | "break";
  /** The whole meaning, such as "waited 12 min for a person". */
  text: string;
  /** The duration alone, where there is little room. */
  short: string;
}

/** Return the folded gaps, in the order of time. A break is folded even if it is short. */
export function gapsOf(bars: readonly Bar[], breaks: readonly Break[]): Gap[] {
  const times = [...new Set(bars.map(({ end }) => end))].sort((one, other) => one - other);
  const placeOf = new Map(times.map((time, index) => [time, index]));
  const waits = covered(bars, placeOf, times.length);
  const broken = new Map(breaks.map((one) => [placeOf.get(one.from), one.to - one.from]));
  const all = times.slice(1).map((to, index) => ({
    from: times[index] ?? to,
    to,
    ended: broken.get(index),
    isWait: waits[index] ?? false,
  }));
  const known = all.filter(({ ended, isWait }) => ended === undefined && !isWait);
  const longest = Math.max(LEAST_MS, FACTOR * usual(known.map(({ from, to }) => to - from)));
  return all.flatMap(({ from, to, ended, isWait }): Gap[] => {
    const short = roughly(ended ?? to - from);
    if (ended !== undefined) {
      return [{ from, to, kind: "break", text: `run ended, continued ${short} later`, short }];
    }
    if (to - from <= longest) {
      return [];
    }
    return isWait
      ? [{ from, to, kind: "wait", text: `waited ${short} for a person`, short }]
      : [{ from, to, kind: "later", text: `${short} later`, short }];
  });
}

/** Return the duration that nine of ten durations do not exceed. */
function usual(durations: readonly number[]): number {
  const sorted = [...durations].sort((one, other) => one - other);
  return sorted[Math.floor((sorted.length - 1) * USUAL)] ?? 0;
}

/** Return for each gap whether a step that waited for an answer covers the gap. */
function covered(
  bars: readonly Bar[],
  placeOf: ReadonlyMap<number, number>,
  size: number,
): boolean[] {
  const changes = new Int32Array(size + 1);
  for (const { kind, start, end } of bars) {
    const [first, last] = [placeOf.get(start), placeOf.get(end)];
    if (kind === "wait" && first !== undefined && last !== undefined) {
      changes[first] = (changes[first] ?? 0) + 1;
      changes[last] = (changes[last] ?? 0) - 1;
    }
  }
  let open = 0;
  return Array.from(changes, (change) => {
    open += change;
    return open > 0;
  });
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Return a duration as exact as a label needs: "0.27 s", "38 s", "4 min 12 s", "12 min", "3 h". */
export function roughly(milliseconds: number): string {
  if (milliseconds < 9_500) {
    return duration(milliseconds);
  }
  const seconds = Math.round(milliseconds / 1000);
  if (seconds < 60) {
    return `${seconds} s`;
  }
  if (seconds < 600) {
    return duration(1000 * seconds);
  }
  if (milliseconds < 1.5 * HOUR) {
    return `${Math.round(milliseconds / MINUTE)} min`;
  }
  return milliseconds < 1.5 * DAY
    ? `${Math.round(milliseconds / HOUR)} h`
    : `${Math.round(milliseconds / DAY)} d`;
}
