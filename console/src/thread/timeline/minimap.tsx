/** A small picture of the whole thread, with a frame around the part that is shown. */
import type { RefObject } from "preact";
import { useMemo, useRef } from "preact/hooks";
import type { Layout } from "./layout/layout.ts";
import type { Marks } from "./layout/marks.ts";
import type { Sight } from "./layout/pieces.ts";

const HEIGHT = 36; // pixels

interface MinimapProps {
  layout: Layout;
  marks: Marks;
  sight: Sight;
  panBy: (pixels: number) => void;
}

export function Minimap({ layout, marks, sight, panBy }: MinimapProps) {
  const { scale, zoom, left, width } = sight;
  const box = useRef<SVGSVGElement>(null);
  const whole = Math.max(1, scale.width(1));
  const data = useMemo(() => saves(layout, sight), [layout, scale]);
  const flags = useMemo(() => flagsOf(layout, marks, sight), [layout, marks, scale]);
  const share = (pixels: number) => scale.x(scale.timeAt(pixels, zoom), 1);
  const [from, to] = [Math.max(0, share(left)), Math.min(whole, share(left + width))];
  const go = (event: PointerEvent) => {
    if (event.buttons === 1) {
      const x = placeIn(box, event) * whole;
      panBy(scale.x(scale.timeAt(x, 1), zoom) - left - width / 2);
    }
  };
  return (
    <svg
      class="timeline-minimap"
      ref={box}
      viewBox={`0 0 ${whole} ${HEIGHT}`}
      preserveAspectRatio="none"
      aria-hidden="true"
      onPointerDown={go}
      onPointerMove={go}
    >
      <path class="timeline-saves" d={data} />
      {Object.entries(flags).map(([kind, path]) => (
        <path key={kind} class={`timeline-flag ${kind}`} d={path} />
      ))}
      <rect class="timeline-frame" x={from} y={0} width={Math.max(2, to - from)} height={HEIGHT} />
    </svg>
  );
}

function placeIn(box: RefObject<SVGSVGElement | null>, event: PointerEvent): number {
  const { left, width } = box.current?.getBoundingClientRect() ?? { left: 0, width: 1 };
  return (event.clientX - left) / Math.max(1, width);
}

/** Return columns as high as the number of saves in each pixel. */
function saves({ bars }: Layout, { scale }: Sight): string {
  const columns = new Uint32Array(Math.ceil(scale.width(1)) + 2);
  for (const { end } of bars) {
    const at = Math.floor(scale.x(end, 1));
    columns[at] = (columns[at] ?? 0) + 1;
  }
  const most = Math.log2(1 + columns.reduce((one, other) => Math.max(one, other), 1));
  let data = "";
  columns.forEach((number, x) => {
    if (number > 0) {
      data += `M${x} ${HEIGHT}v${-Math.round((HEIGHT - 4) * (Math.log2(1 + number) / most))}`;
    }
  });
  return data;
}

/** Return lines at breaks and at the marks that need a person, by their kind. */
function flagsOf({ breaks }: Layout, marks: Marks, { scale }: Sight): Record<string, string> {
  const flags = { bad: new Set(breaks.map(({ to }) => to)), warn: new Set<number>() };
  for (const [first] of marks.values()) {
    if (first?.kind === "bad" || first?.kind === "warn") {
      flags[first.kind].add(first.at.end);
    }
  }
  return Object.fromEntries(
    Object.entries(flags).map(([kind, times]) => {
      const places = new Set([...times].map((time) => Math.round(scale.x(time, 1))));
      return [kind, [...places].map((x) => `M${x} 0v${HEIGHT}`).join("")];
    }),
  );
}
