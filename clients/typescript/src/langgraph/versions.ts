/** Versions of channels: what comes after the current one. */

const DIGITS = 32;
const RANDOM_DIGITS = 16;
const PADDED = new RegExp(`^\\d{${DIGITS}}(\\.|$)`);

/**
 * Return a version that sorts after `current`, of the same type.
 *
 * A thread that began with numbers continues with numbers, because versions of different types
 * cannot be compared. Otherwise versions are text, the same text as the Python saver's, so that
 * one thread can be driven from both: a counter padded to 32 digits, a dot, and random digits
 * that tell branches of a fork apart.
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

/** Return the counter in a version, or -1 if it has another shape. */
export function ordinal(version: string | number): number {
  const counter = /^\d+/.exec(String(version));
  return counter === null ? -1 : Number(counter[0]);
}

function randomDigits(): string {
  // A double has fewer digits than are needed, so they come in two halves. Nobody has an interest
  // in guessing them.
  return half() + half();
}

function half(): string {
  const digits = RANDOM_DIGITS / 2;
  return String(Math.floor(Math.random() * 10 ** digits)).padStart(digits, "0");
}
