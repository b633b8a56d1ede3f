/** The rows that are visible: bars, folds, lines between lanes, marks. */
import { Icon } from "../../parts/icon.tsx";
import { visibleGaps } from "./axis.tsx";
import type { Bar, Layout, Row, Tail } from "./layout/layout.ts";
import type { Marks } from "./layout/marks.ts";
import { BAR, type Cluster, type Piece, piecesOf, ROW, type Sight, xOf } from "./layout/pieces.ts";
import { barName, durationOf, laneName, notesOf, tailText } from "./layout/telling.ts";

const COLOURS = 6;
const TEAR = 10; // pixels between the edges of a tear
const TOOTH = 8; // pixels down to the next turn of an edge
const LEAST_FOLD = 14; // pixels from which a fold is drawn as a torn edge
const LEAST_LINK = 8; // pixels from which a chain has a line
const ROOM_FOR_DURATION = 110; // pixels of a bar that also shows its duration

interface DrawingProps {
  layout: Layout;
  marks: Marks;
  sight: Sight;
  /** Indices of the rows that are drawn. */
  first: number;
  last: number;
  selected: Bar | undefined;
  /** Pixels of what comes after the last checkpoint of a lane. */
  tail: number;
}

export function Drawing(props: DrawingProps) {
  const { layout, marks, sight, first, last, selected, tail: room } = props;
  const rows = layout.rows.slice(first, last);
  const drawn = rows.map((row, index) => piecesOf(row, marks, sight, index * ROW));
  const height = rows.length * ROW;
  const style = { top: `${first * ROW}px` };
  const tails = layout.tails.filter(
    ({ after: bar }) => bar.row >= first && bar.row < last && isSeen(sight, bar.end, room),
  );
  return (
    <div class="timeline-drawing" role="presentation" style={style}>
      <svg width={sight.width} height={height} aria-hidden="true">
        <Folds gaps={visibleGaps(layout.gaps, sight)} sight={sight} height={height} />
        {rows.map((row, index) => (
          <g key={first + index} class={colourOf(row)}>
            <path class="timeline-link" d={linksOf(row, first + index, first, sight)} />
            {Object.entries(drawn[index]?.shapes ?? {}).map(
              ([kind, data]) => data && <path key={kind} class={`timeline-${kind}`} d={data} />,
            )}
          </g>
        ))}
      </svg>
      {tails.map((tail) => (
        <TailBox key={tail.after.fact.key} tail={tail} first={first} sight={sight} width={room} />
      ))}
      {rows.map((row, index) =>
        drawn[index]?.pieces.map((piece) => (
          <PieceBox
            key={piece.bar.fact.key}
            piece={piece}
            row={row}
            y={index * ROW}
            sight={sight}
            isSelected={piece.bar === selected}
            label={labelOf(piece.bar, row, marks)}
          />
        )),
      )}
      <Tears gaps={visibleGaps(layout.gaps, sight)} sight={sight} height={height} />
      {drawn.map(({ clusters }, index) =>
        clusters.map((cluster) => (
          <ClusterBadge key={cluster.marks[0]?.at.fact.key} cluster={cluster} y={index * ROW} />
        )),
      )}
      {selected && !drawn.some(({ pieces }) => pieces.some(({ bar }) => bar === selected)) && (
        <Ring
          bar={selected}
          first={first}
          sight={sight}
          label={labelOf(selected, layout.rows[selected.row], marks)}
        />
      )}
    </div>
  );
}

/** Return the name of an option: what a screen reader says of a bar. */
function labelOf(bar: Bar, row: Row | undefined, marks: Marks): string {
  const facts = [barName(bar), row && laneName(row), durationOf(bar)];
  return [...facts, ...notesOf(bar, marks, undefined)].filter(Boolean).join(", ");
}

function isSeen(sight: Sight, time: number, room: number): boolean {
  const x = xOf(sight, time);
  return x > -room && x < sight.width;
}

function colourOf({ colour }: Row): string {
  return `lane-${colour % COLOURS}`;
}

/** Return lines along the chains of a row, and from the checkpoints that they come from. */
function linksOf(row: Row, index: number, first: number, sight: Sight): string {
  let [data, last] = ["", Number.NEGATIVE_INFINITY];
  const middle = (index - first) * ROW + ROW / 2;
  for (const { begin, end, from } of row.links) {
    const left = xOf(sight, begin);
    const right = Math.min(xOf(sight, end), sight.width + 1);
    if (left > sight.width) {
      break;
    }
    if (right < -1 || right - last < LEAST_LINK) {
      continue;
    }
    last = right;
    if (from && left >= -1) {
      const top = Math.max(-1, (from.row - first) * ROW + (ROW + BAR) / 2);
      data += `M${Math.round(left) + 0.5} ${top}V${middle}`;
    } else {
      data += `M${Math.round(Math.max(-1, left))} ${middle}`;
    }
    data += `H${Math.round(right)}`;
  }
  return data;
}

type Gaps = ReturnType<typeof visibleGaps>;

/** The grounds of folded gaps. */
function Folds({ gaps, sight, height }: { gaps: Gaps; sight: Sight; height: number }) {
  return (
    <>
      {gaps.map(({ from, to, kind }) => {
        const [x, end] = [xOf(sight, from), xOf(sight, to)];
        return (
          end - x >= LEAST_FOLD && (
            <rect
              key={from}
              class={`timeline-fold ${kind}`}
              x={x}
              width={end - x}
              height={height}
            />
          )
        );
      })}
    </>
  );
}

/** Torn edges over the bars: the time between them is not to scale. */
function Tears({ gaps, sight, height }: { gaps: Gaps; sight: Sight; height: number }) {
  const data = zigzag(height);
  return (
    <svg class="timeline-tears" width={sight.width} height={height} aria-hidden="true">
      {gaps.map(({ from, to, kind }) => {
        const [x, end] = [xOf(sight, from), xOf(sight, to)];
        return (
          end - x >= LEAST_FOLD && (
            <path
              key={from}
              class={`timeline-tear ${kind}`}
              d={data}
              transform={`translate(${Math.round(end - TEAR - 2)} 0)`}
            />
          )
        );
      })}
    </svg>
  );
}

function zigzag(height: number): string {
  const turns = Array.from({ length: Math.ceil(height / TOOTH) + 1 }, (_, turn) => turn);
  const edge = (x: number) => turns.map((turn) => `${x + (turn % 2) * (TEAR / 2)} ${turn * TOOTH}`);
  return `M${[...edge(0), ...edge(TEAR / 2).reverse()].join("L")}z`;
}

interface PieceBoxProps {
  piece: Piece;
  row: Row;
  y: number;
  sight: Sight;
  isSelected: boolean;
  label: string;
}

function PieceBox({ piece, row, y, sight, isSelected, label }: PieceBoxProps) {
  const { bar, isIndented, isMarked } = piece;
  // A bar that begins far to the left has its label where the bar becomes visible.
  const x = Math.max(piece.x, -2);
  const width = Math.min(piece.x + piece.width, sight.width + 2) - x;
  const isRoomy = bar.kind === "step" && width >= ROOM_FOR_DURATION;
  const style = {
    left: `${x}px`,
    top: `${y + (ROW - BAR) / 2}px`,
    width: `${Math.max(0, width - 1)}px`,
    ...(bar.torn ? { "--torn": `${xOf(sight, bar.torn.to) - x}px` } : {}),
  };
  return (
    // biome-ignore lint/a11y/useFocusableInteractive: the timeline has the focus, and names the option
    <div
      id={isSelected ? "timeline-selected" : undefined}
      class={`timeline-bar ${bar.kind} ${colourOf(row)}${bar.stands ? "" : " left"}${isMarked ? " marked" : ""}`}
      role="option"
      aria-selected={isSelected}
      aria-label={label}
      data-took={isRoomy ? durationOf(bar) : undefined}
      style={style}
    >
      <span class={`timeline-label${isIndented ? " indented" : ""}`}>{barName(bar)}</span>
    </div>
  );
}

interface TailBoxProps {
  tail: Tail;
  first: number;
  sight: Sight;
  width: number;
}

function TailBox({ tail, first, sight, width }: TailBoxProps) {
  const { after: bar, kind } = tail;
  const style = {
    left: `${xOf(sight, bar.end)}px`,
    top: `${(bar.row - first) * ROW + (ROW - BAR) / 2}px`,
    width: `${width}px`,
  };
  return (
    <div class={`timeline-tail ${kind}`} aria-hidden="true" style={style}>
      {tailText(tail)}
    </div>
  );
}

function ClusterBadge({ cluster: { x, marks }, y }: { cluster: Cluster; y: number }) {
  const [mark] = marks;
  if (!mark) {
    return null;
  }
  const { icon, kind } = mark;
  const style = { left: `${x}px`, top: `${y + ROW / 2}px` };
  return (
    <span class={`timeline-mark ${kind}`} aria-hidden="true" style={style}>
      <Icon of={icon} />
      {marks.length > 1 && <sup>{Math.min(marks.length, 99)}</sup>}
    </span>
  );
}

interface RingProps {
  bar: Bar;
  first: number;
  sight: Sight;
  label: string;
}

/** The selected checkpoint, if its bar has no element of its own. */
function Ring({ bar, first, sight, label }: RingProps) {
  const x = Math.max(-8, xOf(sight, bar.start));
  const width = Math.min(xOf(sight, bar.end), sight.width + 8) - x;
  const style = {
    left: `${x - 4}px`,
    top: `${(bar.row - first) * ROW + (ROW - BAR) / 2 - 2}px`,
    width: `${Math.max(0, width) + 8}px`,
  };
  return (
    // biome-ignore lint/a11y/useFocusableInteractive: the timeline has the focus, and names the option
    <div
      id="timeline-selected"
      class="timeline-ring"
      role="option"
      aria-selected={true}
      aria-label={label}
      style={style}
    />
  );
}
