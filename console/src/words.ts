/** Numbers, sizes, times and identifiers in a form for people. */
import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";

const whole = new Intl.NumberFormat("en");
const absolute = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const timeOnly = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const minuteOnly = new Intl.DateTimeFormat("en-GB", { timeStyle: "short" });
const dayOnly = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["second", 60],
  ["minute", 60],
  ["hour", 24],
  ["day", 7],
  ["week", 4.35],
  ["month", 12],
  ["year", Number.POSITIVE_INFINITY],
];

export function count(number: number | bigint): string {
  return whole.format(number);
}

/** Return a number with its noun, such as "1 thread" or "2,000 threads". */
export function counted(number: number | bigint, one: string, many = `${one}s`): string {
  return `${count(number)} ${BigInt(number) === 1n ? one : many}`;
}

export function bytes(number: number | bigint): string {
  let size = Number(number);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024) {
      return `${size < 10 && unit !== "B" ? size.toFixed(1) : Math.round(size)} ${unit}`;
    }
    size /= 1024;
  }
  return `${size.toFixed(1)} TiB`;
}

/** Return a moment as date and time. */
export function moment(time: Timestamp): string {
  return absolute.format(timestampMs(time));
}

/** Return the time of day of a moment. */
export function timeOfDay(time: Timestamp): string {
  return timeOnly.format(timestampMs(time));
}

/** Return the time of day of a moment without seconds. */
export function minute(time: Timestamp): string {
  return minuteOnly.format(timestampMs(time));
}

/** Return the day of a moment without the year. */
export function day(time: Timestamp): string {
  return dayOnly.format(timestampMs(time));
}

/** Return the time between two moments, in milliseconds. */
export function elapsedMs(from: Timestamp, to: Timestamp): number {
  return Number(to.seconds - from.seconds) * 1000 + (to.nanos - from.nanos) / 1e6;
}

/** Return a moment relative to another moment, by default the present: "3 minutes ago". */
export function ago(time: Timestamp, now = Date.now()): string {
  let distance = (timestampMs(time) - now) / 1000;
  for (const [unit, size] of STEPS) {
    if (Math.abs(distance) < size) {
      return relative.format(Math.round(distance), unit);
    }
    distance /= size;
  }
  return moment(time);
}

const AGES: [string, number][] = [
  ["s", 60],
  ["min", 60],
  ["h", 24],
  ["d", 30],
  ["mo", 12],
  ["y", Number.POSITIVE_INFINITY],
];

/** Return the time since a moment in one unit, for a column: "now", "12 s", "3 min", "5 d". */
export function age(time: Timestamp, now = Date.now()): string {
  let distance = (now - timestampMs(time)) / 1000;
  if (distance < 10) {
    return "now"; // also for the time of a server whose clock is ahead
  }
  for (const [unit, size] of AGES) {
    if (distance < size) {
      return `${Math.floor(distance)} ${unit}`;
    }
    distance /= size;
  }
  return moment(time);
}

/** Return a duration in one or two units: "0.27 s", "12.3 s", "4 min 12 s", "3 d 4 h". */
export function duration(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds / 1000);
  if (seconds < 59.95) {
    return `${seconds === 0 ? 0 : seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`;
  }
  const all = Math.round(seconds);
  const minutes = Math.floor(all / 60);
  const hours = Math.floor(all / 3600);
  if (hours >= 24) {
    return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  }
  return hours > 0 ? `${hours} h ${minutes % 60} min` : `${minutes} min ${all % 60} s`;
}

/**
 * Return the part of an ID that distinguishes it from its neighbours. UUIDv6 start with their time.
 */
export function short(id: string): string {
  return id.length > 13 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}

export function hex(data: Uint8Array): string {
  return Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Return text of an agent on one line, for a place with little room.
 *
 * Control characters, and characters that change the direction of text, are shown as their code.
 */
export function oneLine(text: string, longest = 300): string {
  const cut = text.length > longest ? `${text.slice(0, longest)}…` : text;
  return visible(cut.replace(/\s+/g, " ").trim());
}

/**
 * Return text with its control and formatting characters shown as their codes.
 *
 * Line breaks and tabs stay, and the joiner that emoji are composed with.
 */
export function visible(text: string): string {
  return text.replace(/(?![\n\t\u200d])[\p{Cc}\p{Cf}]/gu, code);
}

function code(character: string): string {
  return `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`;
}
