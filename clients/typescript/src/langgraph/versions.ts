/** Versions of channels: the successor of the current version. */

const DIGITS = 32;
const RANDOM_DIGITS = 16;
const PADDED = new RegExp(`^\\d{${DIGITS}}(\\.|$)`);

/**
 * Return a version that sorts after `current`, of the same type.
 *
 * A thread that started with numbers continues with numbers, because versions of different types
 * cannot be compared. Otherwise versions are text in the Python saver's format, so that both
 * languages can drive one thread: a counter padded to 32 digits, a dot, and random digits that
 * distinguish the branches of a fork.
 *
 * @throws RangeError - `current` is text in a form that has no successor.
 */
export function nextVersion(current: string | number | undefined): string | number {
  if (typeof current === "number") {
    return current + 1;
  }
  if (current !== undefined && !PADDED.test(current)) {
    throw new RangeError(
      `channel version ${JSON.stringify(current)} is not padded to ${DIGITS} digits, so no ` +
        "version of this saver sorts after it; continue the thread with the saver that made it",
    );
  }
  const counter = current === undefined ? 0n : BigInt(current.slice(0, DIGITS));
  return `${String(counter + 1n).padStart(DIGITS, "0")}.${randomDigits()}`;
}

/** Return the counter in a version, or -1 if the version has another shape. */
export function ordinal(version: string | number): number {
  const counter = /^\d+/.exec(String(version));
  return counter === null ? -1 : Number(counter[0]);
}

function randomDigits(): string {
  // A double has too few digits, so two halves are joined. Nobody gains by guessing the digits.
  return half() + half();
}

function half(): string {
  const digits = RANDOM_DIGITS / 2;
  return String(Math.floor(Math.random() * 10 ** digits)).padStart(digits, "0");
}
