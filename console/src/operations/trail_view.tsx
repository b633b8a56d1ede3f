/**
 * The audit trail: who called which method, latest last, and whether its chain of hashes is intact.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { threadLink } from "../links.ts";
import { Badge } from "../parts/labels.tsx";
import { Pager } from "../parts/pager.tsx";
import { Empty, Note, ProblemNote } from "../parts/problem.tsx";
import { admin } from "../server/calls.ts";
import { type Problem, problemOf } from "../server/problems.ts";
import { counted, hex, oneLine } from "../words.ts";
import { type Sha256, type TrailEntry, TrailReader } from "./trail.ts";

const BATCHES = 1000; // entries in one page of the call
const PAGE = 25; // entries that are shown at a time
const KEPT = 10_000; // latest entries that are kept

interface Reading {
  phase: "idle" | "reading" | "stopped" | "failed" | "done";
  entries: TrailEntry[];
  batches: number;
  /** The problem of the chain. */
  broken: string;
  problem: Problem | undefined;
}

const IDLE: Reading = { phase: "idle", entries: [], batches: 0, broken: "", problem: undefined };

// Browsers offer no hashes to pages that were loaded over plain HTTP from another machine.
const sha256: Sha256 | undefined = window.crypto.subtle
  ? async (content) =>
      hex(new Uint8Array(await window.crypto.subtle.digest("SHA-256", new Uint8Array(content))))
  : undefined;

export function Trail() {
  const [reading, setReading] = useState<Reading>(IDLE);
  const running = useRef<AbortController>(undefined);
  useEffect(() => () => running.current?.abort(), []);
  const start = () => {
    running.current?.abort();
    const leaving = new AbortController();
    running.current = leaving;
    readTrail(leaving.signal, (next) => {
      if (running.current === leaving) {
        setReading(next);
      }
    });
  };
  const { phase } = reading;
  return (
    <section class="card" aria-label="Audit trail">
      <div class="trail-head">
        <h2>Audit trail</h2>
        {phase === "reading" ? (
          <button type="button" onClick={() => running.current?.abort()}>
            Stop
          </button>
        ) : (
          <button type="button" onClick={start}>
            {phase === "idle" ? "Read the trail" : "Read again"}
          </button>
        )}
      </div>
      <p class="quiet">
        Who called what on this tenant, and how the call ended. Each batch has the SHA-256 of the
        batch before, so reading the trail shows whether a batch was changed or left out. Needs the
        scope admin.
      </p>
      {reading.problem && <ProblemNote problem={reading.problem} retry={start} />}
      {reading.problem?.title === "Not allowed" && (
        <p>
          Flush and the sizes of the disk also need the scope admin; the rest of this page needs the
          scope read.
        </p>
      )}
      {phase !== "idle" && !reading.problem && <Chain reading={reading} />}
      {reading.entries.length > 0 && <Entries key={phase} entries={reading.entries} />}
      {phase === "done" && reading.batches === 0 && (
        <Empty title="The trail is empty.">
          <p>
            A server that asks for no credentials records nothing unless it runs with{" "}
            <code>--trail changes</code> or <code>--trail all</code>.
          </p>
        </Empty>
      )}
    </section>
  );
}

async function readTrail(signal: AbortSignal, show: (reading: Reading) => void): Promise<void> {
  const reader = new TrailReader(sha256);
  let entries: TrailEntry[] = [];
  const now = (phase: Reading["phase"], problem?: Problem) =>
    show({ phase, entries, batches: reader.size, broken: reader.broken, problem });
  now("reading");
  try {
    for (;;) {
      const request = { afterBatchId: reader.last, pageSize: BATCHES };
      const { batches } = await admin.listTrail(request, { signal });
      if (batches.length === 0) {
        now("done");
        return;
      }
      const added: TrailEntry[] = [];
      for (const batch of batches) {
        added.push(...(await reader.take(batch)));
      }
      entries = [...entries, ...added].slice(-KEPT);
      now("reading");
    }
  } catch (error) {
    if (signal.aborted) {
      now("stopped");
    } else {
      now("failed", problemOf(error));
    }
  }
}

function Chain({ reading }: { reading: Reading }) {
  const { phase, batches, broken } = reading;
  const read = counted(batches, "batch", "batches");
  if (broken) {
    return (
      <Note kind="bad" title="The trail was changed" role="alert">
        <p>{broken} Entries before that batch are as they were written.</p>
      </Note>
    );
  }
  if (!sha256) {
    return (
      <Note kind="warn">
        <p>
          {read} read; their hashes were not checked. A browser computes hashes only on a page from
          this machine or over HTTPS. <code>tuskpoint trail</code> checks them anywhere.
        </p>
      </Note>
    );
  }
  return (
    <p role="status">
      {phase === "reading" && `Reading: ${read} so far…`}
      {phase === "stopped" && `Stopped after ${read}, the oldest; their chain holds.`}
      {phase === "done" &&
        batches > 0 &&
        `The chain holds: ${read}, each names the one before. What was cut off at the end shows only against an earlier catalog.`}
    </p>
  );
}

function Entries({ entries }: { entries: TrailEntry[] }) {
  const last = Math.max(0, Math.ceil(entries.length / PAGE) - 1) * PAGE;
  const [first, setFirst] = useState<number>();
  const from = first ?? last;
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table scrolls by keyboard too */}
      <section class="trail-table" aria-label="Entries" tabIndex={0}>
        <table>
          <thead>
            <tr>
              {["Time", "Who", "Call", "Thread", "Status"].map((name) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ))}
              <th scope="col" class="number">
                Calls
              </th>
            </tr>
          </thead>
          <tbody>
            {entries.slice(from, from + PAGE).map((entry, index) => (
              <Row key={from + index} entry={entry} />
            ))}
          </tbody>
        </table>
      </section>
      <Pager what="entries" first={from} page={PAGE} size={entries.length} onMove={setFirst} />
    </>
  );
}

function Row({ entry }: { entry: TrailEntry }) {
  const { last, who, method, threadId, status, calls, certified } = entry;
  return (
    <tr>
      <td>
        {last.replace("T", " ").replace(/\.\d+/, "").replace("+00:00", " UTC")}
        {!certified && <Badge>not certified</Badge>}
      </td>
      <td>{who ? oneLine(who, 60) : <span class="quiet">nobody named</span>}</td>
      <td>{oneLine(method, 60)}</td>
      <td>{threadId && <a href={threadLink(threadId)}>{oneLine(threadId, 60)}</a>}</td>
      <td>{status === "OK" ? status : <Badge kind="warn">{oneLine(status, 40)}</Badge>}</td>
      <td class="number">{calls}</td>
    </tr>
  );
}
