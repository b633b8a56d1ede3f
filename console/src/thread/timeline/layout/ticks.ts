/** Marks of the time axis, at times that a clock shows, with their texts. */
import type { Scale } from "./scale.ts";

const LEAST = 96; // pixels between two ticks
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((number) => number * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((number) => number * MINUTE),
  ...[1, 2, 3, 6, 12].map((number) => number * HOUR),
];

export interface Tick {
  /** Distance from the first time, in pixels. */
  x: number;
  text: string;
}

/** Return the ticks between two places; a place after a fold has one too. */
export function ticksOf(scale: Scale, zoom: number, first: number, last: number): Tick[] {
  const pace = scale.pace(zoom);
  const step = stepFor(LEAST * pace);
  const zone = new Date(scale.timeAt(first, zoom)).getTimezoneOffset() * MINUTE;
  const ticks: Tick[] = [];
  for (let place = first; place < last; ) {
    const here = scale.timeAt(place, zoom);
    const time = Math.ceil((here - zone) / step) * step + zone;
    const end = scale.foldEnd(time);
    const x = scale.x(end ?? time, zoom);
    if (x >= last) {
      break;
    }
    ticks.push({ x, text: clock(end ?? time, end === undefined ? step : Math.min(step, SECOND)) });
    place = Math.max(x, place) + LEAST;
  }
  return ticks;
}

function stepFor(milliseconds: number): number {
  const step = STEPS.find((one) => one >= milliseconds);
  if (step !== undefined) {
    return step;
  }
  const days = milliseconds / DAY;
  const power = 10 ** Math.floor(Math.log10(Math.max(days, 1)));
  const digit = [1, 2, 5, 10].find((one) => one * power >= days) ?? 10;
  return digit * power * DAY;
}

const minutes = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const seconds = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const days = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium" });

/** Return a time of day as exact as a distance between two times asks for. */
export function clock(time: number, step: number): string {
  if (step >= DAY) {
    return days.format(time);
  }
  if (step >= MINUTE) {
    return minutes.format(time);
  }
  const text = seconds.format(time);
  const rest = Math.floor(((time % SECOND) + SECOND) % SECOND);
  return step >= SECOND ? text : `${text}.${String(rest).padStart(3, "0")}`;
}

/** Return the date of a time. */
export function dateOf(time: number): string {
  return days.format(time);
}
