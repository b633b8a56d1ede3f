/** Keeps rows steady under the hands of a person while listings arrive. */
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { type Group, inPlace } from "./groups.ts";
import type { Listing } from "./listing.ts";

const STEADY_MS = 4000; // time for which rows stay in place after a person used them

interface Steady {
  /** The groups to show; `undefined`: nothing is listed yet. */
  groups: Group[] | undefined;
  /** The element around the rows. */
  table: RefObject<HTMLDivElement | null>;
}

/**
 * Return the groups to show.
 *
 * While a person points at the rows, or walks through the rows, rows get later facts, but no row
 * comes, goes or moves; the next listing moves the rows. The focus stays at its row.
 */
export function useSteadyGroups(listing: Listing | undefined): Steady {
  const table = useRef<HTMLDivElement>(null);
  const usedAt = useLastUse(table);
  const shown = useRef<{ listing: Listing; groups: Group[] } | undefined>(undefined);
  const before = shown.current;
  if (!listing) {
    shown.current = undefined;
  } else if (listing !== before?.listing) {
    const isUsed = performance.now() - usedAt.current < STEADY_MS;
    const isSame = before?.listing.request === listing.request;
    const groups = isSame && isUsed ? inPlace(before.groups, listing.groups) : listing.groups;
    shown.current = { listing, groups };
  }
  useSteadyFocus(table);
  return { groups: shown.current?.groups, table };
}

/** The time at which a person last moved the pointer, or pressed a key, over an element. */
function useLastUse(element: RefObject<HTMLElement | null>): { current: number } {
  const usedAt = useRef(Number.NEGATIVE_INFINITY);
  useEffect(() => {
    const events = ["pointermove", "pointerdown", "keydown", "focusin"];
    const use = ({ target }: Event) => {
      if (target instanceof Node && element.current?.contains(target)) {
        usedAt.current = performance.now();
      }
    };
    for (const name of events) {
      window.addEventListener(name, use);
    }
    return () => {
      for (const name of events) {
        window.removeEventListener(name, use);
      }
    };
  }, [element]);
  return usedAt;
}

/** Returns the focus to its row after an update moved the row, which takes the focus away. */
function useSteadyFocus(table: RefObject<HTMLElement | null>): void {
  const focused = document.activeElement;
  const isInside = table.current?.contains(focused);
  const href = isInside ? focused?.getAttribute("href") : undefined;
  useLayoutEffect(() => {
    if (href && document.activeElement === document.body) {
      const row = table.current?.querySelector<HTMLElement>(`a[href="${CSS.escape(href)}"]`);
      row?.focus({ preventScroll: true });
    }
  });
}
