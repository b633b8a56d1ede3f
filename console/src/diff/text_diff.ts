/** The differences between two texts, word by word, in bounded time. Pure. */

export interface Piece {
  text: string;
  changed: boolean;
}

const MOST_TOKENS = 4000; // of one text; longer texts are compared by lines instead of words
const MOST_EDITS = 400; // work grows with their square; beyond it, the middle counts as changed
const WORDS = /\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu;
const LINES = /[^\n]*\n|[^\n]+$/g;

/** Divide two texts into common pieces, and pieces that only one text has. */
export function compareTexts(from: string, to: string): { from: Piece[]; to: Piece[] } {
  const [left, right] = tokens(from, to);
  const shorter = Math.min(left.length, right.length);
  let start = 0;
  while (start < shorter && left[start] === right[start]) {
    start += 1;
  }
  let end = 0;
  while (end < shorter - start && left.at(-1 - end) === right.at(-1 - end)) {
    end += 1;
  }
  const middle = (all: string[]) => all.slice(start, all.length - end);
  const kept = commonTokens(middle(left), middle(right));
  const pieces = (all: string[], keeps: Set<number>) =>
    joined([
      { text: all.slice(0, start).join(""), changed: false },
      ...middle(all).map((text, index) => ({ text, changed: !keeps.has(index) })),
      { text: all.slice(all.length - end).join(""), changed: false },
    ]);
  return {
    from: pieces(left, kept.from),
    to: pieces(right, kept.to),
  };
}

/** Cut unchanged pieces, except for `context` characters beside a change. */
export function shortened(pieces: Piece[], context = 150): Piece[] {
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

function tokens(from: string, to: string): [string[], string[]] {
  const words: [string[], string[]] = [from.match(WORDS) ?? [], to.match(WORDS) ?? []];
  if (words.every(({ length }) => length <= MOST_TOKENS)) {
    return words;
  }
  return [from.match(LINES) ?? [], to.match(LINES) ?? []];
}

interface Kept {
  from: Set<number>;
  to: Set<number>;
}

/** Return the positions of the common tokens, after Myers: with the fewest edits. */
function commonTokens(left: string[], right: string[]): Kept {
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
      if (x >= left.length && x - diagonal >= right.length) {
        return backtracked(steps, middle, left.length, right.length);
      }
    }
  }
  return { from: new Set(), to: new Set() };
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

function backtracked(steps: Int32Array[], middle: number, width: number, height: number): Kept {
  const kept: Kept = { from: new Set(), to: new Set() };
  let x = width;
  let y = height;
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
