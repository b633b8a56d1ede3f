/** Lists of links with keyboard navigation. */
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { moved, usePageKeys } from "./list_keys.ts";

interface RowsProps {
  /** Noun for the entries, for screen readers. */
  label: string;
  children: ComponentChildren;
}

/** The list; its children are `li` elements with one link of class `row` each. */
export function Rows({ label, children }: RowsProps) {
  const list = useRef<HTMLUListElement>(null);
  usePageKeys(walkPage);
  const press = (event: KeyboardEvent) => {
    // j and k also lead from one list of the page to the next.
    if (event.key !== "j" && event.key !== "k") {
      walk(event, list.current);
    }
  };
  return (
    <ul class="rows" aria-label={label} ref={list} onKeyDown={press}>
      {children}
    </ul>
  );
}

function walkPage(event: KeyboardEvent): void {
  walk(event, document.querySelector("main"));
}

/** Focuses the row of `part` that the key leads to. */
function walk(event: KeyboardEvent, part: HTMLElement | null): void {
  const links = Array.from(part?.querySelectorAll<HTMLElement>("a.row") ?? []);
  const at = links.indexOf(document.activeElement as HTMLElement);
  const next = moved(event, at, links.length);
  if (next !== undefined) {
    event.preventDefault();
    links[next]?.focus();
  }
}
