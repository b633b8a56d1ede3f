/** The differences between two texts, word by word, in bounded time. Pure. */

export interface Piece {
  text: string;
  changed: boolean;
}

const MOST_TOKENS = 4000; // of one text
const MOST_EDITS = 400; // work grows with their square
const WORDS = /\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu;
const SENTENCES = /(?<=[.!?;:])(?=\s)|(?<=[.!?;:]\s)|(?<=\n)/; // the space after each stands alone
const LINES = /[^\n]*\n|[^\n]+$/g;

/** Ways to divide a text, the finest first; texts that differ too much are compared by the next. */
const GRAINS: ((text: string) => string[])[] = [
  (text) => text.match(WORDS) ?? [],
  (text) => text.split(SENTENCES),
];

/** Which of two texts are only the start of a text. */
export interface CutTexts {
  from: boolean;
  to: boolean;
}

const COMPLETE: CutTexts = { from: false, to: false };

/**
 * Divide two texts into common pieces, and pieces that only one text has.
 *
 * If a text is cut, nobody knows what the rest of the other text corresponds to: the pieces end
 * where a cut text ends.
 */
export function compareTexts(
  from: string,
  to: string,
  cut = COMPLETE,
): { from: Piece[]; to: Piece[] } {
  for (const grain of GRAINS) {
    const [left, right] = [grain(from), grain(to)];
    const fits = Math.max(left.length, right.length) <= MOST_TOKENS;
    const compared = fits ? compareTokens(left, right, cut) : undefined;
    if (compared?.isWhole) {
      return compared;
    }
  }
  return compareTokens(from.match(LINES) ?? [], to.match(LINES) ?? [], cut);
}

interface Compared {
  from: Piece[];
  to: Piece[];
  /** Whether the comparison was completed: otherwise the whole middle counts as changed. */
  isWhole: boolean;
}

function compareTokens(allLeft: string[], allRight: string[], cut: CutTexts): Compared {
  const isCut = cut.from || cut.to;
  // The last token of a cut text may be a part of a token.
  const left = cut.from ? allLeft.slice(0, -1) : allLeft;
  const right = cut.to ? allRight.slice(0, -1) : allRight;
  const shorter = Math.min(left.length, right.length);
  let start = 0;
  while (start < shorter && left[start] === right[start]) {
    start += 1;
  }
  let end = 0;
  while (!isCut && end < shorter - start && left.at(-1 - end) === right.at(-1 - end)) {
    end += 1;
  }
  const middle = (all: string[]) => all.slice(start, all.length - end);
  const common = commonTokens(middle(left), middle(right), cut);
  const pieces = (all: string[], keeps: Set<number> | undefined, past: number | undefined) =>
    withoutGaps(
      joined([
        { text: all.slice(0, start).join(""), changed: false },
        ...middle(all)
          .slice(0, past)
          .map((text, index) => ({ text, changed: !keeps?.has(index) })),
        { text: all.slice(all.length - end).join(""), changed: false },
      ]),
    );
  return {
    from: pieces(left, common?.from, common?.pastFrom),
    to: pieces(right, common?.to, common?.pastTo),
    isWhole: common !== undefined,
  };
}

/** Count a space between two changed words as changed, so that changed words are one piece. */
function withoutGaps(pieces: Piece[]): Piece[] {
  const isGap = ({ text, changed }: Piece, index: number) =>
    !changed && pieces[index - 1]?.changed && pieces[index + 1]?.changed && /^\s+$/.test(text);
  return joined(
    pieces.map((piece, index) => (isGap(piece, index) ? { ...piece, changed: true } : piece)),
  );
}

/**
 * Cut unchanged pieces, except for `context` characters beside a change. A text without a change
 * stays whole: the other text got something that this text shows the place of.
 */
export function shortened(pieces: Piece[], context = 150): Piece[] {
  if (pieces.length === 1) {
    return pieces;
  }
  return pieces.map((piece, index) => {
    const { text, changed } = piece;
    if (changed || text.length <= 2 * context + 20) {
      return piece;
    }
    const head = index === 0 ? "" : text.slice(0, context);
    const tail = index === pieces.length - 1 ? "" : text.slice(-context);
    return { text: `${head} … ${tail}`, changed };
  });
}

interface Kept {
  from: Set<number>;
  to: Set<number>;
}

interface Common extends Kept {
  /** Positions after the last compared tokens. */
  pastFrom: number;
  pastTo: number;
}

/**
 * Return the positions of the common tokens, after Myers: with the fewest edits; undefined: there
 * are more than `MOST_EDITS`. The comparison ends with the first cut text.
 */
function commonTokens(left: string[], right: string[], cut: CutTexts): Common | undefined {
  const most = Math.min(left.length + right.length, MOST_EDITS);
  const steps: Int32Array[] = [];
  const reached = new Int32Array(2 * most + 3);
  const middle = most + 1;
  for (let edits = 0; edits <= most; edits += 1) {
    steps.push(reached.slice());
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const down = takesDown(reached, middle, diagonal, edits);
      let x = at(reached, middle + diagonal + (down ? 1 : -1)) + (down ? 0 : 1);
      while (x < left.length && x - diagonal < right.length && left[x] === right[x - diagonal]) {
        x += 1;
      }
      reached[middle + diagonal] = x;
      const y = x - diagonal;
      const [isLeftDone, isRightDone] = [x === left.length, y === right.length];
      const isInside = x <= left.length && y <= right.length;
      if (
        isInside &&
        ((isLeftDone && isRightDone) || (isLeftDone && cut.from) || (isRightDone && cut.to))
      ) {
        return { ...backtracked(steps, middle, x, y), pastFrom: x, pastTo: y };
      }
    }
  }
  return undefined;
}

function at(reached: Int32Array, index: number): number {
  return reached[index] ?? 0;
}

/** Return whether the furthest path to a diagonal comes from taking a token of the right text. */
function takesDown(reached: Int32Array, middle: number, diagonal: number, edits: number): boolean {
  const above = at(reached, middle + diagonal + 1);
  const beside = at(reached, middle + diagonal - 1);
  return diagonal === -edits || (diagonal !== edits && beside < above);
}

function backtracked(steps: Int32Array[], middle: number, endX: number, endY: number): Kept {
  const kept: Kept = { from: new Set(), to: new Set() };
  let x = endX;
  let y = endY;
  for (let edits = steps.length - 1; edits >= 0; edits -= 1) {
    const reached = steps[edits] ?? new Int32Array();
    const diagonal = x - y;
    const before = diagonal + (takesDown(reached, middle, diagonal, edits) ? 1 : -1);
    const fromX = edits === 0 ? 0 : at(reached, middle + before);
    const fromY = edits === 0 ? 0 : fromX - before;
    while (x > fromX && y > fromY) {
      x -= 1;
      y -= 1;
      kept.from.add(x);
      kept.to.add(y);
    }
    x = fromX;
    y = fromY;
  }
  return kept;
}

function joined(pieces: Piece[]): Piece[] {
  const merged: Piece[] = [];
  for (const { text, changed } of pieces) {
    const last = merged.at(-1);
    if (last && last.changed === changed) {
      last.text += text;
    } else if (text) {
      merged.push({ text, changed });
    }
  }
  return merged;
}
