/** Moves through a long list, a page at a time. */
import { count } from "../words.ts";

interface PagerProps {
  /** What the list has, such as "verdicts". */
  what: string;
  /** Index of the first entry that is shown. */
  first: number;
  /** Entries of a page. */
  page: number;
  /** Entries of the list. */
  size: number;
  onMove: (first: number) => void;
}

/** Shows nothing if everything fits one page. */
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
