/** A list of links with keyboard navigation. */
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { moved } from "./list_keys.ts";

interface RowsProps {
  /** Noun for the entries, for screen readers. */
  label: string;
  children: ComponentChildren;
}

/** The list; its children are `li` elements with one link of class `row` each. */
export function Rows({ label, children }: RowsProps) {
  const list = useRef<HTMLUListElement>(null);
  const press = (event: KeyboardEvent) => {
    const links = Array.from(list.current?.querySelectorAll<HTMLElement>("a.row") ?? []);
    const next = moved(event, links.indexOf(event.target as HTMLElement), links.length);
    if (next !== undefined) {
      event.preventDefault();
      links[next]?.focus();
    }
  };
  return (
    <ul class="rows" aria-label={label} ref={list} onKeyDown={press}>
      {children}
    </ul>
  );
}
