/** Finds the searched words in a text, so that they can be marked. */

export interface Piece {
  text: string;
  marked: boolean;
}

const WORD = /[\p{L}\p{N}]+/gu;
const SHORTEST_STEM = 4; // letters that two forms of a word must share
const NEAR = 20; // characters before a match that an excerpt does not cut off
const LEAD = 12; // characters before a match that an excerpt has otherwise
const LONGEST_ENDING = 3; // letters in which two forms of a word may differ at the end

/**
 * Split a text into pieces, with the words that match the query marked.
 *
 * The search compares stems of words without case and accents, so other forms of a word are marked
 * too: "starts" for "started".
 */
export function pieces(text: string, query: string): Piece[] {
  const wanted = words(query);
  const parts: Piece[] = [];
  let end = 0;
  for (const { 0: word, index } of text.matchAll(WORD)) {
    const plain = bare(word);
    if (wanted.some((one) => isForm(one, plain))) {
      if (index > end) {
        parts.push({ text: text.slice(end, index), marked: false });
      }
      end = index + word.length;
      parts.push({ text: word, marked: true });
    }
  }
  if (end < text.length) {
    parts.push({ text: text.slice(end), marked: false });
  }
  return parts;
}

/** Return whether a text has a word that matches the query. */
export function isMarked(text: string, query: string): boolean {
  return pieces(text, query).some(({ marked }) => marked);
}

/** Return at most `longest` characters of a text, from just before the first matching word on. */
export function excerpt(text: string, query: string, longest: number): string {
  const [before] = pieces(text, query);
  const first = before && !before.marked ? before.text.length : 0;
  // Of a text without a match, the first piece is everything.
  const begin = first > NEAR && first < text.length ? first - LEAD : 0;
  const end = begin + longest;
  return `${begin > 0 ? "…" : ""}${text.slice(begin, end)}${end < text.length ? "…" : ""}`;
}

function words(query: string): string[] {
  return [...new Set(Array.from(query.matchAll(WORD), ([word]) => bare(word)))];
}

function bare(word: string): string {
  return word.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
}

function isForm(one: string, other: string): boolean {
  if (one === other) {
    return true;
  }
  let shared = 0;
  while (shared < one.length && one[shared] === other[shared]) {
    shared += 1;
  }
  const ending = Math.max(one.length, other.length) - shared;
  return shared >= SHORTEST_STEM && ending <= LONGEST_ENDING;
}
