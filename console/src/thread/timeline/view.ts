/** The part of the timeline that is shown: zoomed and moved by hand, else everything. */
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Sight } from "./layout/pieces.ts";
import type { Scale } from "./layout/scale.ts";

const PADDING = 12; // pixels before the first time
const MARGIN = 24; // pixels between the edge and what is revealed

interface View {
  zoom: number;
  left: number;
}

export interface Viewing {
  sight: Sight;
  /** Whether a part is shown, not everything. */
  isPart: boolean;
  /** Zooms by a factor, around a place in pixels from the left edge. */
  zoomBy: (factor: number, x: number) => void;
  panBy: (pixels: number) => void;
  showAll: () => void;
  /** Shows a time, and moves only if it is outside. */
  reveal: (time: number) => void;
}

/** Return the part that is shown. `after`: pixels that are needed after the last time. */
export function useView(scale: Scale, width: number, after: number): Viewing {
  const [view, setView] = useState<View>({ zoom: 1, left: 0 });
  const wanted = useRef(view);
  const frame = useRef(0);
  useEffect(() => () => window.cancelAnimationFrame(frame.current), []);
  const limited = limit(view, scale, width, after);
  const change = useCallback(
    (next: (now: View) => View) => {
      wanted.current = limit(next(limit(wanted.current, scale, width, after)), scale, width, after);
      frame.current ||= window.requestAnimationFrame(() => {
        frame.current = 0;
        setView(wanted.current);
      });
    },
    [scale, width, after],
  );
  const zoomBy = useCallback(
    (factor: number, x: number) =>
      change(({ zoom, left }) => {
        const time = scale.timeAt(left - PADDING + x, zoom);
        const next = Math.min(Math.max(1, zoom * factor), scale.mostZoom);
        return { zoom: next, left: scale.x(time, next) + PADDING - x };
      }),
    [change, scale],
  );
  const panBy = useCallback(
    (pixels: number) => change(({ zoom, left }) => ({ zoom, left: left + pixels })),
    [change],
  );
  const showAll = useCallback(() => change(() => ({ zoom: 1, left: 0 })), [change]);
  const reveal = useCallback(
    (time: number) =>
      change(({ zoom, left }) => {
        const x = scale.x(time, zoom) + PADDING - left;
        const isSeen = x >= Math.min(MARGIN, PADDING) && x <= width - MARGIN;
        return { zoom, left: isSeen ? left : left + x - width / 2 };
      }),
    [change, scale, width],
  );
  const { zoom, left } = limited;
  const sight = useMemo(
    () => ({ scale, zoom, left: left - PADDING, width }),
    [scale, zoom, left, width],
  );
  return { sight, isPart: zoom > 1, zoomBy, panBy, showAll, reveal };
}

/** Return the pixels at zoom 1 from the first to the last time. */
export function roomFor(width: number, after: number): number {
  return Math.max(1, width - PADDING - after);
}

function limit({ zoom, left }: View, scale: Scale, width: number, after: number): View {
  const limited = Math.min(zoom, scale.mostZoom);
  const most = Math.max(0, scale.width(limited) + PADDING + after - width);
  return { zoom: limited, left: Math.min(Math.max(0, left), most) };
}
