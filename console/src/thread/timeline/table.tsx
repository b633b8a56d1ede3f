/** The facts of the timeline as a table: for screen readers, and for everybody. */
import { useMemo, useState } from "preact/hooks";
import { checkpointLink } from "../../links.ts";
import { Pager } from "../../parts/pager.tsx";
import type { Bar, Layout } from "./layout/layout.ts";
import type { Marks } from "./layout/marks.ts";
import { barName, durationOf, laneName, notesOf } from "./layout/telling.ts";
import { clock, dateOf } from "./layout/ticks.ts";

const PAGE = 200; // rows
const EXACT = 1; // milliseconds

interface TimelineTableProps {
  threadId: string;
  layout: Layout;
  marks: Marks;
  selected: Bar | undefined;
}

export function TimelineTable({ threadId, layout, marks, selected }: TimelineTableProps) {
  const { bars, rows, tails } = layout;
  const [first, setFirst] = useState(() => {
    const at = selected ? bars.indexOf(selected) : bars.length - 1;
    return Math.max(0, Math.floor(at / PAGE) * PAGE);
  });
  const tailOf = useMemo(() => new Map(tails.map((tail) => [tail.after, tail])), [tails]);
  const shown = Math.min(first, Math.floor(Math.max(0, bars.length - 1) / PAGE) * PAGE);
  return (
    <>
      <div class="timeline-table">
        <table>
          <caption class="unseen">Checkpoints, oldest first</caption>
          <thead>
            <tr>
              <th scope="col">Lane</th>
              <th scope="col">Nodes</th>
              <th scope="col">Started</th>
              <th scope="col" class="number">
                Duration
              </th>
              <th scope="col">Marks</th>
            </tr>
          </thead>
          <tbody>
            {bars.slice(shown, shown + PAGE).map((bar) => {
              const row = rows[bar.row];
              return (
                <Line
                  key={bar.fact.key}
                  threadId={threadId}
                  bar={bar}
                  lane={row ? laneName(row) : ""}
                  notes={notesOf(bar, marks, tailOf.get(bar))}
                  isSelected={bar === selected}
                />
              );
            })}
          </tbody>
        </table>
      </div>
      <Pager what="checkpoints" first={shown} page={PAGE} size={bars.length} onMove={setFirst} />
    </>
  );
}

interface LineProps {
  threadId: string;
  bar: Bar;
  lane: string;
  notes: string[];
  isSelected: boolean;
}

function Line({ threadId, bar, lane, notes, isSelected }: LineProps) {
  const { ns: checkpointNs, id: checkpointId } = bar.fact;
  return (
    <tr aria-current={isSelected ? "true" : undefined}>
      <td>{lane}</td>
      <td>
        <a href={checkpointLink({ threadId, checkpointNs, checkpointId })}>{barName(bar)}</a>
      </td>
      <td>
        <time title={dateOf(bar.start)}>{clock(bar.start, EXACT)}</time>
      </td>
      <td class="number">{durationOf(bar)}</td>
      <td>{notes.join("; ")}</td>
    </tr>
  );
}
