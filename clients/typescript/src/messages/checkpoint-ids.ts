/**
 * Checkpoint IDs: UUID version 6, whose text order is their order in time.
 *
 * Layout after RFC 9562, section 5.6. A client mints the ID of each checkpoint that it saves, so
 * that a save whose answer was lost can be sent again without a duplicate. If no UUIDv6 sorts after
 * a caller's own ID, such as `cp-001`, the next ID is that ID, a dash and a UUIDv6.
 */

import { randomBytes } from "node:crypto";

import { InvalidRequest } from "../errors.js";

/** Units of 100 ns between 1582-10-15 and the Unix epoch. */
const GREGORIAN_OFFSET = 0x01b21dd213814000n;
const MAX_BYTES = 128;
const UUID6_BEHIND =
  /^(.*-)([0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})$/s;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * Return an ID of this moment that is lexically greater than `above`.
 *
 * @param above - The ID to follow; empty for none.
 * @throws InvalidRequest - The new ID would exceed the longest allowed ID.
 */
export function newCheckpointId(above: string): string {
  const ticks = BigInt(Date.now()) * 10_000n + GREGORIAN_OFFSET;
  return mint(ticks, randomBytes(8).readBigUInt64BE(), above);
}

/**
 * Return the ID of a moment, or the next ID after `above` if that is later.
 *
 * @param ticks - Time in units of 100 ns since 1582-10-15.
 * @param entropy - Random bits; 62 bits are used.
 * @param above - The ID to follow; empty for none.
 * @throws InvalidRequest - The new ID would exceed the longest allowed ID.
 */
export function mint(ticks: bigint, entropy: bigint, above: string): string {
  const [, prefix = "", last = above] = UUID6_BEHIND.exec(above) ?? [];
  for (const minted of [
    uuid6(ticks, entropy),
    uuid6(later(ticks, ticksOf(above) + 1n), entropy),
    prefix + uuid6(later(ticks, ticksOf(last) + 1n), entropy),
    `${above}-${uuid6(ticks, entropy)}`,
  ]) {
    if (minted > above && Buffer.byteLength(minted) <= MAX_BYTES) {
      return minted;
    }
  }
  throw new InvalidRequest(
    `no ID of at most ${MAX_BYTES} bytes sorts after '${above}': set checkpointId`,
    { status: "INVALID_ARGUMENT", reason: "INVALID_FIELD", metadata: { field: "checkpointId" } },
  );
}

function later(one: bigint, other: bigint): bigint {
  return one > other ? one : other;
}

function uuid6(ticks: bigint, entropy: bigint): string {
  const high = (BigInt.asUintN(60, ticks) >> 12n) << 16n;
  const front = high | (6n << 12n) | (ticks & 0xfffn);
  const back = (0b10n << 62n) | BigInt.asUintN(62, entropy);
  const hex = ((front << 64n) | back).toString(16).padStart(32, "0");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function ticksOf(checkpointId: string): bigint {
  if (!UUID.test(checkpointId)) {
    return 0n;
  }
  const front = BigInt(`0x${checkpointId.replaceAll("-", "").slice(0, 16)}`);
  return ((front >> 16n) << 12n) | (front & 0xfffn);
}
