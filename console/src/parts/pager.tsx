/** Moves through a long list by pages. */
import { count } from "../words.ts";

interface PagerProps {
  /** Noun for the entries, such as "verdicts". */
  what: string;
  /** Index of the first entry that is shown. */
  first: number;
  /** Number of entries on a page. */
  page: number;
  /** Number of entries in the list. */
  size: number;
  onMove: (first: number) => void;
}

/** Controls for the pages; empty if everything fits one page. */
export function Pager({ what, first, page, size, onMove }: PagerProps) {
  if (size <= page && first === 0) {
    return null;
  }
  return (
    <nav class="pager" aria-label={`Pages of ${what}`}>
      <button
        type="button"
        disabled={first === 0}
        onClick={() => onMove(Math.max(0, first - page))}
      >
        Earlier {what}
      </button>
      <span>
        {count(Math.min(first + 1, size))} to {count(Math.min(first + page, size))} of {count(size)}
      </span>
      <button type="button" disabled={first + page >= size} onClick={() => onMove(first + page)}>
        Later {what}
      </button>
    </nav>
  );
}
