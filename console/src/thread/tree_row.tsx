/** A row of the tree: the step in columns, and its place among the lanes. */
import { type Checkpoint, Durability } from "@contract/checkpoint_pb.js";
import { metadataOf } from "../checkpoint/describe.ts";
import { graphName } from "../checkpoint/step_title.ts";
import { Icon } from "../parts/icon.tsx";
import { count, duration, moment, oneLine } from "../words.ts";
import type { LaneRow } from "./lanes.ts";
import type { Entry } from "./log.ts";
import type { Mark } from "./marks.ts";
import { type Columns, chipsIn, clockOf, markWidth, roomOf, titleWidth } from "./row_layout.ts";

/** Height of a row, in pixels. */
export const ROW = 32;
const LANE = 12;
const NARROW_LANE = 8;
const NARROW = 400; // width of a tree, in pixels, below which lanes are close together
const MOST_LANES = 8; // lanes beyond this number are drawn over the last lane
const COLOURS = 6;
const TIGHT = 220; // pixels for a title, marks and chips, below which marks have no texts

/** How the lanes are drawn. */
export interface Drawing {
  /** The distance from lane to lane, in pixels. */
  step: number;
  /** The last lane of all rows, where titles begin in a column; undefined: after each row's own. */
  last: number | undefined;
}

/** Return how the lanes of all rows are drawn in a tree of a width. */
export function drawingOf(rows: readonly LaneRow[], treeWidth: number): Drawing {
  return treeWidth < NARROW
    ? { step: NARROW_LANE, last: undefined }
    : { step: LANE, last: rows.reduce((last, { lane }) => Math.max(last, lane), 0) };
}

/** Return the middle of a lane, in pixels from the left. */
function placeOf(lane: number, { step }: Drawing): number {
  return Math.min(lane, MOST_LANES - 1) * step + LANE / 2 + 2;
}

/** Return the width of the lanes in a row, in pixels. */
function lanesWidth(row: LaneRow | undefined, drawing: Drawing): number {
  const own = row ? [row, ...row.passing, ...row.arriving].map(({ lane }) => lane) : [];
  return placeOf(drawing.last ?? Math.max(0, ...own), drawing) + LANE;
}

interface RowProps {
  entry: Entry;
  /** The entry in the row above. */
  above: Entry | undefined;
  marks: readonly Mark[];
  /** Time since the save of the parent, in milliseconds; undefined: it is not known. */
  tookMs: number | undefined;
  columns: Columns;
  row: LaneRow | undefined;
  lanes: Drawing;
  /** Width of the tree. */
  width: number;
}

export function RowContent({ entry, above, marks, tookMs, columns, row, lanes, width }: RowProps) {
  const { checkpoint, checkpointNs, title } = entry;
  const graph = graphName(checkpointNs);
  const named = graph ? `${graph} › ${title}` : title;
  const graphWidth = lanesWidth(row, lanes);
  const room = roomOf(width, graphWidth, columns);
  const isTight = room < TIGHT;
  const used = marks.reduce((sum, { shown }) => sum + markWidth(isTight ? "" : shown), 0);
  return (
    <>
      {columns.clock && <Clock entry={entry} above={above} />}
      <Lanes row={row} drawing={lanes} width={graphWidth} entry={entry} />
      <span class="tree-title">
        {graph && <span class="tree-graph">{graph} › </span>}
        <span class="tree-name">{oneLine(title, 200)}</span>
      </span>
      <Chips
        names={checkpoint.step?.changedChannels ?? []}
        room={room - used - titleWidth(named)}
      />
      <span class="tree-marks">
        {marks.map((mark) => (
          <MarkView key={mark.text} mark={isTight ? { ...mark, shown: "" } : mark} />
        ))}
      </span>
      <Figures checkpoint={checkpoint} tookMs={tookMs} columns={columns} />
    </>
  );
}

/** The time of day, once for each minute, and the day before the first time of a day. */
function Clock({ entry, above }: Pick<RowProps, "entry" | "above">) {
  const { createTime } = entry.checkpoint;
  const { day, minute } = clockOf(createTime, above?.checkpoint.createTime);
  return (
    <time class="tree-clock" title={createTime && moment(createTime)}>
      {day && <span>{day} </span>}
      <span>{minute}</span>
    </time>
  );
}

function Chips({ names, room }: { names: readonly string[]; room: number }) {
  const { shown, more } = chipsIn(names, room);
  const all = names.map((name) => oneLine(name, 60)).join(", ");
  return (
    <span class="tree-chips" title={names.length > 0 ? `changed ${all}` : undefined}>
      {names.length > 0 && <span class="unseen">changed {all}</span>}
      {shown.map((name) => (
        <span key={name} class="chip" aria-hidden="true">
          {oneLine(name, 60)}
        </span>
      ))}
      {more > 0 && shown.length > 0 && (
        <span class="quiet" aria-hidden="true">
          +{more}
        </span>
      )}
    </span>
  );
}

export function MarkView({ mark }: { mark: Mark }) {
  const { icon, text, shown, kind } = mark;
  return (
    <span class={`mark ${kind}`} title={text}>
      <Icon of={icon} />
      {shown && <span aria-hidden="true">{shown}</span>}
      <span class="unseen">{text}</span>
    </span>
  );
}

type FiguresProps = Pick<RowProps, "tookMs" | "columns"> & { checkpoint: Checkpoint };

function Figures({ checkpoint, tookMs, columns }: FiguresProps) {
  const { step: number } = metadataOf(checkpoint);
  const { inputTokens = 0n, outputTokens = 0n } = checkpoint.step?.tokens ?? {};
  const tokens = inputTokens + outputTokens;
  return (
    <>
      {columns.tokens && (
        <span
          class="tree-tokens number"
          title={`${count(inputTokens)} in, ${count(outputTokens)} out`}
        >
          {tokens > 0n && (
            <>
              {count(tokens)}
              <span class="unseen"> tokens</span>
            </>
          )}
        </span>
      )}
      {columns.step && (
        <span class="tree-step number">
          {number && <span class="unseen">step </span>}
          {oneLine(number, 6)}
        </span>
      )}
      <span class="tree-took number">{tookMs !== undefined && `+${duration(tookMs)}`}</span>
    </>
  );
}

interface LanesProps {
  row: LaneRow | undefined;
  drawing: Drawing;
  width: number;
  entry: Entry;
}

function Lanes({ row, drawing, width, entry }: LanesProps) {
  if (!row) {
    return null;
  }
  const place = (lane: number) => placeOf(lane, drawing);
  const x = place(row.lane);
  const middle = ROW / 2;
  const certified = entry.checkpoint.durability === Durability.CERTIFIED;
  return (
    <svg width={width} height={ROW} aria-hidden="true" focusable="false">
      {row.passing.map(({ lane, aside }) => (
        <path key={lane} class={strokeOf(lane, aside)} d={`M${place(lane)} 0V${ROW}`} />
      ))}
      {row.arriving.map(({ lane, aside }) => (
        <path
          key={lane}
          class={strokeOf(lane, aside)}
          d={`M${place(lane)} 0C${place(lane)} ${middle} ${x} 4 ${x} ${middle}`}
        />
      ))}
      {row.leaving && (
        <path class={strokeOf(row.lane, row.leaving.aside)} d={`M${x} ${middle}V${ROW}`} />
      )}
      <circle
        class={`knot ${strokeOf(row.lane, false)} ${certified ? "certified" : ""}`}
        cx={x}
        cy={middle}
        r={4.5}
      />
    </svg>
  );
}

function strokeOf(lane: number, aside: boolean): string {
  return `lane-${lane % COLOURS}${aside ? " aside" : ""}`;
}
