/**
 * The timeline of a thread: time runs to the right, a lane for the root graph and for each run of a
 * subgraph, a bar per step.
 */
import { Table2 } from "lucide";
import { useMemo, useState } from "preact/hooks";
import { IconButton } from "../../parts/icon.tsx";
import { counted } from "../../words.ts";
import type { Entry } from "../log.ts";
import type { Mark } from "../marks.ts";
import { factOf } from "./layout/facts.ts";
import { layoutOf } from "./layout/layout.ts";
import { placed } from "./layout/marks.ts";
import { dateOf } from "./layout/ticks.ts";
import { Plot } from "./plot.tsx";
import { TimelineTable } from "./table.tsx";
import "./timeline.css";

interface TimelineProps {
  threadId: string;
  entries: readonly Entry[];
  selected: string | undefined;
  marks: (entry: Entry) => readonly Mark[];
  /** `byKey`: the user moves through the checkpoints with the keyboard. */
  onSelect: (entry: Entry, byKey: boolean) => void;
}

export function Timeline({ threadId, entries, selected, marks, onSelect }: TimelineProps) {
  const layout = useMemo(() => layoutOf(entries.map(factOf)), [entries]);
  const entryOf = useMemo(() => new Map(entries.map((entry) => [entry.key, entry])), [entries]);
  const placedMarks = useMemo(
    () =>
      placed(layout.bars, (key) => {
        const entry = entryOf.get(key);
        return entry ? marks(entry) : [];
      }),
    [layout, entryOf, marks],
  );
  const [isTable, setIsTable] = useState(false);
  const chosen = layout.find(selected);
  const { from, rows } = layout;
  const tools = (
    <>
      <span class="timeline-facts quiet">
        {dateOf(from)}, {counted(rows.length, "lane")}
      </span>
      <IconButton
        of={Table2}
        label="Show as a table"
        aria-pressed={isTable}
        onClick={() => setIsTable(!isTable)}
      />
    </>
  );
  return (
    <section class="card timeline" aria-label="Timeline">
      {isTable ? (
        <>
          <div class="timeline-tools">{tools}</div>
          <TimelineTable
            threadId={threadId}
            layout={layout}
            marks={placedMarks}
            selected={chosen}
          />
        </>
      ) : (
        <Plot
          layout={layout}
          marks={placedMarks}
          selected={chosen}
          onSelect={({ fact: { key } }, byKey) => {
            const entry = entryOf.get(key);
            if (entry) {
              onSelect(entry, byKey);
            }
          }}
        >
          {tools}
        </Plot>
      )}
    </section>
  );
}
