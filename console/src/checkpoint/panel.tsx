/** One checkpoint: what ran, what it needs a person for, and its parts. */
import { type Checkpoint, View } from "@contract/checkpoint_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import { useEffect, useRef } from "preact/hooks";
import { CheckpointActions } from "../actions/checkpoint_actions.tsx";
import { Interrupts } from "../actions/interrupts/interrupts.tsx";
import type { Ref } from "../links.ts";
import { Loading, ProblemNote } from "../parts/problem.tsx";
import { checkpoints } from "../server/calls.ts";
import { onlyCheckpoint } from "../server/checkpoints.ts";
import { type Loaded, useLoad } from "../server/loading.ts";
import { asks } from "./describe.ts";
import { FailureNotes } from "./failure_notes.tsx";
import { Heading } from "./heading.tsx";
import { titleOf } from "./step_title.ts";
import { Tabs } from "./tabs.tsx";
import "./panel.css";

/** What the listing of the thread says about a checkpoint. */
export interface Listed {
  /** The checkpoint in `VIEW_STEP`. */
  checkpoint: Checkpoint;
  title: string;
  /** Time since the save of the parent, in milliseconds; undefined: it is not known. */
  tookMs: number | undefined;
  /** Checkpoint of the subgraph in which the first failing task failed; undefined: no subgraph. */
  failedInside: Ref | undefined;
}

interface CheckpointPanelProps {
  reference: Ref;
  /** Undefined: the listing does not have the checkpoint. */
  listed: Listed | undefined;
  /** Thread of the checkpoint; undefined while it is loading. */
  thread: Thread | undefined;
  /** The open tab; empty: the first tab. */
  tab: string;
  /** Changes when the checkpoint may have changed, according to the watch of the thread. */
  version: number;
}

export function CheckpointPanel({ reference, listed, thread, tab, version }: CheckpointPanelProps) {
  const entry = useCheckpoint(reference, View.STEP, version);
  const whole = useCheckpoint(reference, View.JSON, version);
  const known = entry.data ?? listed?.checkpoint;
  const shown = newest(known, whole.data);
  if (!shown || !known) {
    return entry.problem ? (
      <ProblemNote problem={entry.problem} retry={entry.reload} />
    ) : (
      <Loading what="the checkpoint" />
    );
  }
  const { step } = known;
  return (
    <div class="checkpoint">
      <Heading
        checkpoint={step ? { ...shown, step } : shown}
        title={listed?.title ?? titleOf(known)}
        tookMs={listed?.tookMs}
      />
      {entry.problem && <ProblemNote problem={entry.problem} retry={entry.reload} />}
      {whole.data && asks(whole.data.writes) && (
        <Interrupts checkpoint={whole.data} thread={thread} />
      )}
      {whole.data && <FailureNotes checkpoint={whole.data} inside={listed?.failedInside} />}
      <CheckpointActions checkpoint={whole.data ?? shown} thread={thread} />
      <Tabs
        reference={reference}
        asked={tab}
        shown={shown}
        whole={whole}
        thread={thread}
        changed={step?.changedChannels.length}
      />
    </div>
  );
}

/**
 * Load a checkpoint, and reload it when `version` changes; the previous content stays meanwhile.
 */
function useCheckpoint(reference: Ref, view: View, version: number): Loaded<Checkpoint> {
  const { threadId, checkpointNs, checkpointId } = reference;
  const ref = { threadId, checkpointNs, checkpointId };
  const loaded = useLoad(
    (signal) => onlyCheckpoint(checkpoints.loadCheckpoint({ ref, view }, { signal })),
    [ref],
  );
  const before = useRef(version);
  const { reload } = loaded;
  useEffect(() => {
    if (before.current !== version) {
      before.current = version;
      reload();
    }
  }, [version, reload]);
  return loaded;
}

/**
 * The two calls may see different changes: the later change wins, and of equal changes the
 * checkpoint with values.
 */
function newest(entry: Checkpoint | undefined, whole: Checkpoint | undefined) {
  return entry && whole && entry.seq > whole.seq ? entry : (whole ?? entry);
}
