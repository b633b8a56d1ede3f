/** The picture of the timeline: its axis, its rows and its minimap, and the ways to move in it. */

import { useSignal } from "@preact/signals";
import { Maximize2, Minus, Plus } from "lucide";
import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { IconButton } from "../../parts/icon.tsx";
import { narrow } from "../../parts/narrow.ts";
import { count } from "../../words.ts";
import { Axis } from "./axis.tsx";
import { Drawing } from "./drawing.tsx";
import { useGestures } from "./gestures.ts";
import { useTimelineKeys, ZOOM } from "./keys.ts";
import type { Gap } from "./layout/gaps.ts";
import type { Bar, Layout, Row } from "./layout/layout.ts";
import type { Marks } from "./layout/marks.ts";
import { barAt, beforeTail, ROW } from "./layout/pieces.ts";
import { Scale } from "./layout/scale.ts";
import { laneName } from "./layout/telling.ts";
import { Minimap } from "./minimap.tsx";
import { type Place, PointedLine, PointedTime, Tooltip } from "./pointed.tsx";
import { roomFor, useView } from "./view.ts";

const MINIMAP = 200; // checkpoints above which there is a minimap
const MARGIN = 4; // rows that are drawn above and below the visible rows
const TAIL = 168; // pixels after the last time, if something is known to come next
const NARROW_TAIL = 104;
const EDGE = 12; // pixels between what comes next and the edge of the card
const END = 24; // pixels after the last time otherwise
const FOLDS: Record<Gap["kind"], number> = { later: 56, wait: 120, break: 104 };
const COLOURS = 6;

interface PlotProps {
  layout: Layout;
  marks: Marks;
  selected: Bar | undefined;
  onSelect: (bar: Bar, byKey: boolean) => void;
  /** What stands above the picture, beside its own buttons. */
  children: ComponentChildren;
}

export function Plot({ layout, marks, selected, onSelect, children }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<HTMLDivElement>(null);
  const { width, height, top, scroll } = useBox(box, plot);
  const tail = narrow.value ? NARROW_TAIL : TAIL;
  const after = layout.tails.some(({ after: bar }) => bar.end === layout.to) ? tail + EDGE : END;
  const scale = useMemo(
    () => new Scale(layout.from, layout.to, foldsOf(layout.gaps), roomFor(width, after)),
    [layout, width, after],
  );
  const viewing = useView(scale, width, after);
  const { sight, isPart, zoomBy, panBy, showAll, reveal } = viewing;
  const pointed = useSignal<Place>();
  const find = ({ x, y }: Place) => {
    const index = Math.floor(y / ROW);
    const row = layout.rows[index];
    const tails = layout.tails.filter(({ after: bar }) => bar.row === index);
    return row && (barAt(row, marks, sight, x) ?? beforeTail(tails, sight, x, tail));
  };
  useGestures(plot, {
    zoomBy,
    panBy,
    isPart,
    click: (place) => {
      const bar = find(place);
      if (bar) {
        onSelect(bar, false);
      }
    },
    hover: (place) => {
      pointed.value = place;
    },
  });
  const press = useTimelineKeys({ layout, selected, viewing, width }, (bar) => onSelect(bar, true));
  useEffect(() => {
    if (selected) {
      reveal(selected.end);
      revealRow(box.current, selected.row);
    }
  }, [selected?.fact.key]);
  const first = Math.max(0, Math.floor(top / ROW) - MARGIN);
  const last = Math.min(layout.rows.length, Math.ceil((top + height) / ROW) + MARGIN);
  const parts = { layout, marks, sight };
  const drawing = useMemo(
    () => <Drawing {...parts} {...{ first, last, selected, tail }} />,
    [layout, marks, sight, first, last, selected, tail],
  );
  return (
    <>
      <div class="timeline-tools">
        {children}
        <IconButton
          of={Minus}
          label="Zoom out (-)"
          disabled={!isPart}
          onClick={() => zoomBy(1 / ZOOM, width / 2)}
        />
        <IconButton
          of={Plus}
          label="Zoom in (+, or Ctrl and the wheel)"
          onClick={() => zoomBy(ZOOM, width / 2)}
        />
        <IconButton
          of={Maximize2}
          label="Show everything (0)"
          disabled={!isPart}
          onClick={showAll}
        />
      </div>
      <div class="timeline-head" aria-hidden="true">
        <Axis gaps={layout.gaps} sight={sight} />
        <PointedTime pointed={pointed} sight={sight} />
      </div>
      <div class="timeline-rows">
        <div
          class="timeline-box"
          ref={box}
          role="listbox"
          aria-label={`${count(layout.bars.length)} checkpoints, by time`}
          aria-activedescendant={selected ? "timeline-selected" : undefined}
          tabIndex={0}
          onKeyDown={press}
          onScroll={(event) => scroll(event.currentTarget.scrollTop)}
        >
          <div
            class="timeline-whole"
            role="presentation"
            style={{ height: `${layout.rows.length * ROW}px` }}
          >
            <Names rows={layout.rows} first={first} last={last} />
            <div class="timeline-plot" role="presentation" ref={plot}>
              {drawing}
              <PointedLine pointed={pointed} sight={sight} find={find} />
            </div>
          </div>
        </div>
        <Tooltip pointed={pointed} find={find} {...parts} scrolled={top} />
      </div>
      {layout.bars.length > MINIMAP && <Minimap {...parts} panBy={panBy} />}
    </>
  );
}

function foldsOf(gaps: readonly Gap[]) {
  return gaps.map(({ from, to, kind }) => ({ from, to, width: FOLDS[kind] }));
}

/** The sizes of the visible part, in pixels, and its position. */
function useBox(box: RefObject<HTMLElement | null>, plot: RefObject<HTMLElement | null>) {
  const [size, setSize] = useState({ width: 800, height: 400 });
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    const measure = () =>
      setSize({
        width: plot.current?.clientWidth ?? 0,
        height: box.current?.clientHeight ?? 0,
      });
    measure();
    const watch = new ResizeObserver(measure);
    for (const element of [box.current, plot.current]) {
      if (element) {
        watch.observe(element);
      }
    }
    return () => watch.disconnect();
  }, [box, plot]);
  return { ...size, top, scroll: setTop };
}

function revealRow(box: HTMLDivElement | null, row: number): void {
  const top = row * ROW;
  if (box && top < box.scrollTop) {
    box.scrollTop = top;
  } else if (box && top + ROW > box.scrollTop + box.clientHeight) {
    box.scrollTop = top + ROW - box.clientHeight;
  }
}

function Names({ rows, first, last }: { rows: readonly Row[]; first: number; last: number }) {
  return (
    <div class="timeline-names" aria-hidden="true">
      {rows.slice(first, last).map((row, index) => (
        <div
          key={first + index}
          class={`timeline-name lane-${row.colour % COLOURS} ${row.kind}`}
          style={{ top: `${(first + index) * ROW}px`, "--depth": Math.min(row.depth, 5) }}
          title={laneName(row)}
        >
          {laneName(row)}
        </div>
      ))}
    </div>
  );
}
