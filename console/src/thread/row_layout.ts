/** What fits a row of the tree: chips, columns, and the times beside the rows. Pure. */
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { day, minute } from "../words.ts";

// Pixels, for estimates: measuring every text would cost a layout of each row.
const BOLD_CHARACTER = 8;
const SMALL_CHARACTER = 6.6;
const CHIP_GAP = 8; // between the title and the chips
const CHIP = 18; // the padding of a chip, and the gap before it
const LONGEST_CHIP = 130;
const MORE = 26; // "+3"
const MOST_CHIPS = 4;

/** Widths at which columns of the tree fit, in pixels. */
const CLOCK_FITS = 300;
const STEP_FITS = 380;
const TOKENS_FIT = 560;

/** Columns of the tree besides the title. */
export interface Columns {
  /** The time of day, once for each minute. */
  clock: boolean;
  step: boolean;
  tokens: boolean;
}

/** Widths of the columns, with their gaps, in pixels; `took` is always there. */
export const WIDTHS = { clock: 52, step: 36, tokens: 60, took: 84 };

/** Return the columns that fit a tree: in a narrow tree the least important columns are left out. */
export function columnsIn(width: number, hasTokens: boolean): Columns {
  return {
    clock: width >= CLOCK_FITS,
    step: width >= STEP_FITS,
    tokens: hasTokens && width >= TOKENS_FIT,
  };
}

/** Return the room for a title, marks and chips in a tree, in pixels. */
export function roomOf(width: number, lanes: number, { clock, step, tokens }: Columns): number {
  const { clock: clockWidth, step: stepWidth, tokens: tokensWidth, took } = WIDTHS;
  return (
    width -
    lanes -
    took -
    (clock ? clockWidth : 0) -
    (step ? stepWidth : 0) -
    (tokens ? tokensWidth : 0)
  );
}

/** Return the estimated width of a title in a row. */
export function titleWidth(title: string): number {
  return title.length * BOLD_CHARACTER + CHIP_GAP;
}

/** Return the estimated width of a mark: an icon, perhaps with a text. */
export function markWidth(text: string): number {
  return 26 + Math.min(text.length * SMALL_CHARACTER, LONGEST_CHIP);
}

export interface Chips {
  shown: string[];
  /** Number of names that do not fit. */
  more: number;
}

/** Return the first names that fit `room` pixels as chips, and the number of the rest. */
export function chipsIn(names: readonly string[], room: number): Chips {
  let left = room;
  let fitting = 0;
  for (const name of names.slice(0, MOST_CHIPS)) {
    left -= CHIP + Math.min(name.length * SMALL_CHARACTER, LONGEST_CHIP);
    const isLast = fitting + 1 === names.length;
    if (left < (isLast ? 0 : MORE)) {
      break;
    }
    fitting += 1;
  }
  return { shown: names.slice(0, fitting), more: names.length - fitting };
}

/** Return the time of day beside a row, unless the row above is of the same minute. */
export function clockOf(
  time: Timestamp | undefined,
  above: Timestamp | undefined,
): { day: string; minute: string } {
  if (!time) {
    return { day: "", minute: "" };
  }
  const isNewDay = !above || day(above) !== day(time);
  const isNewMinute = isNewDay || minute(above) !== minute(time);
  return { day: isNewDay ? day(time) : "", minute: isNewMinute ? minute(time) : "" };
}
