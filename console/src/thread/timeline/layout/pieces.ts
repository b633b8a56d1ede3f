/** What a row of the timeline draws between two places: a bar each where there is room. */
import type { Bar, Row, Tail } from "./layout.ts";
import { type Marks, type PlacedMark, weightier } from "./marks.ts";
import type { Scale } from "./scale.ts";

export const ROW = 28; // pixels
export const BAR = 20;
const LABELLED = 26; // pixels from which a bar is an element with a label
const LEAST = 2; // pixels of the shortest bar
const NARROW = 4; // pixels below which neighbours are drawn as one
const CLUSTER = 18; // pixels between two marks
const POINT = 4; // pixels from the middle of a point to its corners
const NEAR = 5; // pixels between the pointer and a bar that it means

/** The part of the time that is shown. */
export interface Sight {
  scale: Scale;
  zoom: number;
  /** Distance from the first time to the left edge, in pixels. */
  left: number;
  width: number;
}

export interface Piece {
  bar: Bar;
  /** From the left edge, in pixels. */
  x: number;
  width: number;
  /** Whether a mark covers the beginning of the bar. */
  isIndented: boolean;
  /** Whether a mark covers the end of the bar. */
  isMarked: boolean;
}

/** Marks that are drawn at one place: the first of them, and the number of the others. */
export interface Cluster {
  x: number;
  marks: PlacedMark[];
}

export interface RowPieces {
  pieces: Piece[];
  /** Shapes of bars without room for a label, by their kind: data of an SVG path. */
  shapes: Record<Bar["kind"], string>;
  clusters: Cluster[];
}

export function xOf({ scale, zoom, left }: Sight, time: number): number {
  return scale.x(time, zoom) - left;
}

/** Return what a row draws, with its top at `y`. */
export function piecesOf(row: Row, marks: Marks, sight: Sight, y: number): RowPieces {
  const pieces: Piece[] = [];
  const clusters: Cluster[] = [];
  const shapes = { step: new Shape(y), wait: new Shape(y), torn: new Shape(y) };
  let [points, lastPoint] = ["", Number.NEGATIVE_INFINITY];
  for (const bar of visibleBars(row, sight)) {
    const end = xOf(sight, bar.end);
    const start = bar.start === bar.end ? end : xOf(sight, bar.start);
    const own = marks.get(bar.fact.key);
    if (own) {
      gather(clusters, end, own);
    }
    if (bar.kind === "point" && !isOwnInput(bar)) {
      if (end - lastPoint >= POINT) {
        points += `M${round(end - POINT)} ${y + ROW / 2}l4 -4 4 4 -4 4z`;
        lastPoint = end;
      }
    } else if (end - start >= LABELLED) {
      pieces.push({
        bar,
        x: start,
        width: end - start,
        isIndented: false,
        isMarked: own !== undefined,
      });
    } else {
      shapes[bar.kind === "point" ? "step" : bar.kind].add(start, Math.max(end, start + LEAST));
    }
  }
  for (const cluster of clusters) {
    cluster.marks.sort(weightier);
  }
  indent(pieces, clusters);
  const [step, wait, torn] = [shapes.step.data(), shapes.wait.data(), shapes.torn.data()];
  return { pieces, shapes: { step, wait, torn, point: points }, clusters };
}

/** The data of an SVG path of boxes. Boxes too narrow to be seen become one. */
class Shape {
  private drawn = "";
  private from = 0;
  private to = Number.NEGATIVE_INFINITY;
  private isNarrow = false;

  constructor(private readonly y: number) {}

  add(from: number, to: number): void {
    const isNarrow = to - from < NARROW;
    if (isNarrow && this.isNarrow && from <= this.to + 1) {
      this.to = Math.max(this.to, to);
      return;
    }
    this.flush();
    this.from = Math.max(from, this.to);
    this.to = Math.max(this.from, to);
    this.isNarrow = isNarrow;
  }

  data(): string {
    this.flush();
    return this.drawn;
  }

  private flush(): void {
    const width = this.to - this.from;
    if (width > 0) {
      const gap = width > NARROW ? 1 : 0;
      const top = this.y + (ROW - BAR) / 2;
      this.drawn += `M${round(this.from)} ${top}h${round(width - gap)}v${BAR}H${round(this.from)}z`;
    }
  }
}

/** Return whether a point is the input of a subgraph, which follows its caller at once. */
function isOwnInput({ fact: { origin, called } }: Bar): boolean {
  return origin === "input" && called;
}

function round(pixels: number): number {
  return Math.round(pixels * 10) / 10;
}

/** Yield the bars of a row that reach into the shown part of the time, in the order of their ends. */
function* visibleBars({ bars, earliest }: Row, { scale, zoom, left, width }: Sight) {
  const first = scale.timeAt(left - CLUSTER, zoom);
  const last = scale.timeAt(left + width + CLUSTER, zoom);
  for (let index = firstEnding(bars, first); index < bars.length; index += 1) {
    const bar = bars[index];
    if (!bar || (earliest[index] ?? 0) > last) {
      return;
    }
    if (bar.start <= last) {
      yield bar;
    }
  }
}

function firstEnding(bars: readonly Bar[], time: number): number {
  let [low, high] = [0, bars.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    [low, high] = (bars[middle]?.end ?? 0) < time ? [middle + 1, high] : [low, middle];
  }
  return low;
}

function gather(clusters: Cluster[], x: number, marks: readonly PlacedMark[]): void {
  const last = clusters.at(-1);
  if (last && x - last.x < CLUSTER) {
    last.marks.push(...marks);
  } else {
    clusters.push({ x, marks: [...marks] });
  }
}

function indent(pieces: Piece[], clusters: readonly Cluster[]): void {
  let next = 0;
  for (const piece of pieces) {
    while ((clusters[next]?.x ?? Number.POSITIVE_INFINITY) < piece.x - CLUSTER / 2) {
      next += 1;
    }
    piece.isIndented = (clusters[next]?.x ?? Number.POSITIVE_INFINITY) < piece.x + CLUSTER / 2;
  }
}

/** Return the bar that a place in a row means: the bar of a mark, or the nearest bar. */
export function barAt(row: Row, marks: Marks, sight: Sight, x: number): Bar | undefined {
  let [nearest, least]: [Bar | undefined, number] = [undefined, NEAR];
  for (const bar of visibleBars(row, { ...sight, left: sight.left + x, width: 0 })) {
    const end = xOf(sight, bar.end);
    const isMarked = bar.kind === "point" || marks.has(bar.fact.key);
    const distance =
      isMarked && Math.abs(x - end) < CLUSTER / 2
        ? -1
        : Math.max(xOf(sight, bar.start) - x, x - end, 0);
    if (distance < least) {
      [nearest, least] = [bar, distance];
    }
  }
  return nearest;
}

/** Return the bar before what comes next at a place in a row; `width`: the pixels of a tail. */
export function beforeTail(
  tails: readonly Tail[],
  sight: Sight,
  x: number,
  width: number,
): Bar | undefined {
  return tails.find(({ after }) => {
    const distance = x - xOf(sight, after.end);
    return distance >= 0 && distance <= width;
  })?.after;
}
