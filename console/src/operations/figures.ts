/** Figures of a server in a form for people: costs and limits. */
import { type DescField, ScalarType } from "@bufbuild/protobuf";
import type { Duration } from "@bufbuild/protobuf/wkt";
import { type ServerLimits, ServerLimitsSchema } from "@contract/admin_service_pb.js";
import { bytes, count, counted } from "../words.ts";

const FROST_PER_WAL = 1_000_000_000n;
const DIGITS = 6; // decimal digits of a WAL that are shown

/** Return a price in WAL, from FROST; a fraction of the last digit is rounded up. */
export function wal(frost: bigint): string {
  const unit = FROST_PER_WAL / 10n ** BigInt(DIGITS);
  const rounded = (frost + unit - 1n) / unit;
  const perWal = FROST_PER_WAL / unit;
  const fraction = String(rounded % perWal)
    .padStart(DIGITS, "0")
    .replace(/0+$/, "");
  return `${count(rounded / perWal)}${fraction ? `.${fraction}` : ""} WAL`;
}

/**
 * Return every limit with its name in words and its value; new limits of the contract appear by
 * themselves.
 */
export function limitsOf(limits: ServerLimits): [string, string][] {
  return ServerLimitsSchema.fields.map((field) => [inWords(field), shown(field, limits)]);
}

function inWords({ name }: DescField): string {
  const words = name
    .replace(/_bytes$/, "")
    .replace(/_ttl$/, "_time_to_live")
    .replace(/^max_/, name.endsWith("_bytes") ? "largest_" : "most_")
    .replaceAll("_", " ")
    .replace(/\bid\b/, "ID")
    .replace(/\bns\b/, "namespace");
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}`;
}

function shown(field: DescField, limits: ServerLimits): string {
  const value = limits[field.localName as keyof ServerLimits] as unknown;
  if (field.fieldKind === "message") {
    return value ? duration(value as Duration) : "not said";
  }
  const isNumber = field.fieldKind === "scalar" && field.scalar !== ScalarType.STRING;
  if (!isNumber) {
    return String(value);
  }
  const number = value as number | bigint;
  return field.name.endsWith("_bytes") ? bytes(number) : count(number);
}

const UNITS: [string, number][] = [
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
];

/** Return a duration in the largest unit that divides it. */
export function duration({ seconds }: Duration): string {
  const whole = Number(seconds);
  for (const [unit, size] of UNITS) {
    if (whole >= size && whole % size === 0) {
      return counted(whole / size, unit);
    }
  }
  return counted(whole, "second");
}
