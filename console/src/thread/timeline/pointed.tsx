/** What is at the pointer: a line with its time, and what is known of the bar. */
import type { Signal } from "@preact/signals";
import type { Bar, Layout } from "./layout/layout.ts";
import type { Marks } from "./layout/marks.ts";
import { BAR, ROW, type Sight, xOf } from "./layout/pieces.ts";
import { barName, durationOf, laneName, notesOf } from "./layout/telling.ts";
import { clock } from "./layout/ticks.ts";

const TOOLTIP = 288; // pixels
const ASIDE = 12; // pixels between the pointer and the tooltip
const EXACT = 1; // milliseconds
const CURSOR = 4; // pixels of the distance that the time is as exact as

/** A place in the plot, in pixels. */
export interface Place {
  x: number;
  y: number;
}

interface PointedProps {
  pointed: Signal<Place | undefined>;
  sight: Sight;
  /** Returns the bar at a place. */
  find: (place: Place) => Bar | undefined;
}

export function PointedTime({ pointed, sight }: Omit<PointedProps, "find">) {
  if (!pointed.value) {
    return null;
  }
  const { x } = pointed.value;
  const { scale, zoom, left } = sight;
  return (
    <span class="timeline-cursor-time" style={{ "--x": `${x}px` }}>
      {clock(scale.timeAt(left + x, zoom), scale.pace(zoom) * CURSOR)}
    </span>
  );
}

/** The line, and a frame around the bar. */
export function PointedLine({ pointed, sight, find }: PointedProps) {
  if (!pointed.value) {
    return null;
  }
  const bar = find(pointed.value);
  const start = bar ? Math.max(-2, xOf(sight, bar.start)) : 0;
  const frame = bar && {
    left: `${start - 1}px`,
    top: `${bar.row * ROW + (ROW - BAR) / 2 - 1}px`,
    width: `${Math.max(4, Math.min(xOf(sight, bar.end), sight.width + 4) - start + 1)}px`,
  };
  return (
    <>
      <div class="timeline-cursor" style={{ left: `${pointed.value.x}px` }} />
      {frame && <div class="timeline-hovered" style={frame} />}
    </>
  );
}

interface TooltipProps extends PointedProps {
  layout: Layout;
  marks: Marks;
  /** How far the rows are scrolled, in pixels. */
  scrolled: number;
}

export function Tooltip({ pointed, sight, find, layout, marks, scrolled }: TooltipProps) {
  const bar = pointed.value && find(pointed.value);
  if (!pointed.value || !bar) {
    return null;
  }
  const { x } = pointed.value;
  const { width } = sight;
  const row = layout.rows[bar.row];
  const tail = layout.tails.find(({ after }) => after === bar);
  const isRight = x + ASIDE + TOOLTIP > width;
  const style = {
    "--x": `${Math.max(0, isRight ? x - ASIDE - TOOLTIP : x + ASIDE)}px`,
    top: `${(bar.row + 1) * ROW + 4 - scrolled}px`,
    width: `${Math.min(TOOLTIP, width)}px`,
  };
  return (
    <div class="timeline-tooltip" aria-hidden="true" style={style}>
      <strong>{barName(bar)}</strong>
      <span class="number">{durationOf(bar)}</span>
      <span class="quiet">
        {row && laneName(row)}, {clock(bar.start, EXACT)}
        {bar.start !== bar.end && ` to ${clock(bar.end, EXACT)}`}
      </span>
      {notesOf(bar, marks, tail).map((note) => (
        <span key={note}>{note}</span>
      ))}
    </div>
  );
}
