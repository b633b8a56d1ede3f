/** The keys of the timeline: along time, between lanes, and the zoom. */
import { useLayoutEffect } from "preact/hooks";
import { usePageKeys } from "../../parts/list_keys.ts";
import { isTyping } from "../../typing.ts";
import type { Bar, Layout } from "./layout/layout.ts";
import type { Viewing } from "./view.ts";

export const ZOOM = 1.5; // factor of a key or a button

interface Keyed {
  layout: Layout;
  selected: Bar | undefined;
  viewing: Viewing;
  width: number;
}

/**
 * Take j, k, +, - and 0 wherever the focus is; return what takes the other keys while the timeline
 * has the focus.
 */
export function useTimelineKeys(
  { layout, selected, viewing, width }: Keyed,
  select: (bar: Bar) => void,
): (event: KeyboardEvent) => void {
  const press = (event: KeyboardEvent) => {
    const bar = isTyping(event) ? undefined : next(event.key, layout, selected);
    if (bar) {
      event.preventDefault();
      select(bar);
    }
  };
  usePageKeys(press);
  useLayoutEffect(() => {
    const zoom = (event: KeyboardEvent) => {
      if (!isTyping(event)) {
        zoomFor(event.key, viewing, width);
      }
    };
    window.addEventListener("keydown", zoom);
    return () => window.removeEventListener("keydown", zoom);
  }, [viewing, width]);
  return press;
}

function zoomFor(key: string, { zoomBy, showAll }: Viewing, width: number): void {
  if (key === "+" || key === "=") {
    zoomBy(ZOOM, width / 2);
  } else if (key === "-") {
    zoomBy(1 / ZOOM, width / 2);
  } else if (key === "0") {
    showAll();
  }
}

/** Return the bar that a key leads to; undefined: the key has another meaning, or leads nowhere. */
function next(key: string, layout: Layout, selected: Bar | undefined): Bar | undefined {
  const { bars, rows } = layout;
  const own = rows[selected?.row ?? 0]?.bars ?? [];
  switch (key) {
    case "j":
      return bars[selected ? bars.indexOf(selected) + 1 : 0];
    case "k":
      return bars[selected ? bars.indexOf(selected) - 1 : 0];
    case "Home":
      return bars[0];
    case "End":
      return bars.at(-1);
    case "ArrowRight":
      return own[selected ? own.indexOf(selected) + 1 : 0];
    case "ArrowLeft":
      return own[selected ? own.indexOf(selected) - 1 : 0];
    case "ArrowDown":
      return nearest(layout, selected, 1);
    case "ArrowUp":
      return nearest(layout, selected, -1);
    default:
      return undefined;
  }
}

/** Return the bar of the lane below or above that is nearest in time. */
function nearest({ rows }: Layout, selected: Bar | undefined, by: 1 | -1): Bar | undefined {
  const row = rows[selected ? selected.row + by : 0];
  const time = selected?.end ?? 0;
  return row?.bars.reduce((best, bar) =>
    Math.abs(bar.end - time) < Math.abs(best.end - time) ? bar : best,
  );
}
