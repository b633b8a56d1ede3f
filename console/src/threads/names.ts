/** Threads by words in their names. Pure. */

/** Return whether a name has every word, whatever the case. */
export function hasWords(name: string, words: string): boolean {
  const lower = name.toLowerCase();
  return wordsOf(words).every((word) => lower.includes(word));
}

/** Split a name into parts that are in the words, at odd indexes, and parts that are not. */
export function splitByWords(name: string, words: string): string[] {
  const wanted = wordsOf(words).map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  return wanted.length > 0 ? name.split(new RegExp(`(${wanted.join("|")})`, "giu")) : [name];
}

function wordsOf(words: string): string[] {
  return words.toLowerCase().split(/\s+/).filter(Boolean);
}
