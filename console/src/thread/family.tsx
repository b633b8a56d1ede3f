/** The origins and descendants of a thread: forks, rollbacks, hand-offs in and out. */

import { base64Decode } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";
import { type CheckpointRef, View } from "@contract/checkpoint_pb.js";
import { EventKind } from "@contract/history_service_pb.js";
import { LineageKind, type LineageStep } from "@contract/thread_service_pb.js";
import { ErrorInfoSchema } from "@google/rpc/error_details_pb.js";
import { GitBranch, type IconNode, Import, Undo2 } from "lucide";
import { checkpointLink, threadLink } from "../links.ts";
import { done } from "../parts/ask.tsx";
import { Command } from "../parts/command.tsx";
import { Icon } from "../parts/icon.tsx";
import { When } from "../parts/labels.tsx";
import { ProblemNote } from "../parts/problem.tsx";
import { quoted } from "../proof/commands.ts";
import { checkpoints, history, threads } from "../server/calls.ts";
import { onlyCheckpoint } from "../server/checkpoints.ts";
import { type Loaded, useLoad } from "../server/loading.ts";
import { count, oneLine, short } from "../words.ts";
import { keyOf } from "./log.ts";

const MOST_OF_SERVER = 1000; // descendants that a server returns
const MOST = 50; // steps that are listed in each direction
const QUIET_SECONDS = 1n; // silence after which a watch has delivered all past events

export interface Family {
  threadId: string;
  ancestors: LineageStep[];
  descendants: LineageStep[];
  /** Keys of checkpoints that were handed off, as far back as the server keeps events. */
  handedOff: Set<string>;
  /** The oldest known ancestor, if this server does not have that checkpoint. */
  missing: CheckpointRef | undefined;
}

/** Load the family of a thread, and reload it after an action or when `version` changes. */
export function useFamily(threadId: string, version: unknown): Loaded<Family> {
  return useLoad(
    async (signal) => {
      const [lineage, handedOff] = await Promise.all([
        threads.getLineage({ threadId }, { signal }),
        handOffs(threadId, signal),
      ]);
      const { ancestors, descendants } = lineage;
      const oldest = ancestors[0]?.from;
      const missing = oldest && (await isHere(oldest, signal)) ? undefined : oldest;
      return { threadId, ancestors, descendants, handedOff, missing };
    },
    [threadId, version, done.value],
  );
}

/** Return whether this server has a checkpoint: an adopted one may come from another server. */
async function isHere(ref: CheckpointRef, signal: AbortSignal): Promise<boolean> {
  try {
    await onlyCheckpoint(checkpoints.loadCheckpoint({ ref, view: View.ENTRY }, { signal }));
    return true;
  } catch (error) {
    if (ConnectError.from(error).code === Code.NotFound) {
      return false;
    }
    throw error;
  }
}

/** Return the past hand-offs from the thread's events, up to the first silence. */
async function handOffs(threadId: string, signal: AbortSignal): Promise<Set<string>> {
  const keys = new Set<string>();
  let cursor = new Uint8Array();
  for (;;) {
    const request = {
      threadId,
      cursor,
      kinds: [EventKind.HANDED_OFF],
      progressInterval: { seconds: QUIET_SECONDS, nanos: 0 },
    };
    try {
      for await (const { frame } of history.watchThread(request, { signal })) {
        if (frame.case !== "event") {
          continue;
        }
        if (frame.value.kind === EventKind.PROGRESS) {
          return keys;
        }
        const { checkpointNs = "", checkpointId = "" } = frame.value.checkpoint?.ref ?? {};
        keys.add(keyOf(checkpointNs, checkpointId));
      }
      return keys;
    } catch (error) {
      const info = ConnectError.from(error).findDetails(ErrorInfoSchema)[0];
      const oldest = info?.metadata["oldest_cursor"];
      if (info?.reason !== "CURSOR_COMPACTED" || !oldest || cursor.length > 0) {
        throw error;
      }
      cursor = base64Decode(oldest) as Uint8Array<ArrayBuffer>;
    }
  }
}

/** What was made from the checkpoints of a thread, by their keys. */
export function madeFrom(family: Family | undefined): {
  forks: Map<string, number>;
  handedOff: Set<string>;
} {
  const forks = new Map<string, number>();
  const handedOff = new Set(family?.handedOff);
  for (const { kind, from } of family?.descendants ?? []) {
    if (from && from.threadId === family?.threadId) {
      const key = keyOf(from.checkpointNs, from.checkpointId);
      if (kind === LineageKind.FORK) {
        forks.set(key, (forks.get(key) ?? 0) + 1);
      } else if (kind === LineageKind.ADOPTION) {
        handedOff.add(key);
      }
    }
  }
  return { forks, handedOff };
}

/** How a checkpoint came from another one, and an icon for it. */
const VERBS: Record<LineageKind, [string, IconNode]> = {
  [LineageKind.UNSPECIFIED]: ["came from", GitBranch],
  [LineageKind.FORK]: ["forked from", GitBranch],
  [LineageKind.ADOPTION]: ["adopted from", Import],
  [LineageKind.ROLLBACK]: ["rolled back to", Undo2],
};

/** Where a thread was forked or adopted from, in a few words; empty: it began here. */
export function Origin({ family }: { family: Family }) {
  const origin = family.ancestors.findLast(
    ({ from, to }) => to?.threadId === family.threadId && from?.threadId !== family.threadId,
  );
  return origin ? (
    <span>
      {VERBS[origin.kind][0]} <Place reference={origin.from} family={family} isShort />
    </span>
  ) : null;
}

export function FamilyCard({ threadId, family }: { threadId: string; family: Loaded<Family> }) {
  const { data, problem } = family;
  if (problem) {
    return <ProblemNote problem={problem} retry={family.reload} />;
  }
  if (!data || data.ancestors.length + data.descendants.length === 0) {
    return null;
  }
  return (
    <section class="card family" aria-label="Family">
      <h2>Forks, rollbacks and hand-offs</h2>
      <ul>
        {data.ancestors.slice(-MOST).map((step) => (
          <Step key={stepKey(step)} step={step} family={data} />
        ))}
        {data.descendants.slice(0, MOST).map((step) => (
          <Step key={stepKey(step)} step={step} family={data} />
        ))}
      </ul>
      {Math.max(data.ancestors.length, data.descendants.length) > MOST && (
        <>
          <p class="quiet">
            Only the nearest {MOST} steps are listed. The command line lists up to{" "}
            {count(MOST_OF_SERVER)}:
          </p>
          <Command text={lineageCommand(threadId)} what="the command" />
        </>
      )}
    </section>
  );
}

/** Return the command that lists the lineage of a thread. */
function lineageCommand(threadId: string): string {
  const separator = threadId.startsWith("-") ? "-- " : "";
  return `tuskpoint lineage --limit ${MOST_OF_SERVER} ${separator}${quoted(threadId)}`;
}

function stepKey(step: LineageStep): string {
  return `${step.to?.threadId} ${step.to?.checkpointId}`;
}

function Step({ step, family }: { step: LineageStep; family: Family }) {
  const [verb, icon] = VERBS[step.kind];
  return (
    <li class="family-step">
      <Icon of={icon} />
      <span>
        <Place reference={step.to} family={family} /> {verb}{" "}
        <Place reference={step.from} family={family} />
      </span>
      <span class="quiet">
        <When time={step.createTime} />
      </span>
    </li>
  );
}

interface PlaceProps {
  reference: CheckpointRef | undefined;
  family: Family;
  /** Whether only the thread is named. */
  isShort?: boolean;
}

function Place({ reference, family, isShort = false }: PlaceProps) {
  if (!reference) {
    return <span class="quiet">another server</span>;
  }
  const { threadId, checkpointNs, checkpointId } = reference;
  const thread = threadId === family.threadId ? "this thread" : oneLine(threadId, 60);
  const name = checkpointId && !isShort ? `${thread} at ${short(checkpointId)}` : thread;
  if (reference === family.missing) {
    return <span>{name}</span>;
  }
  const href = checkpointId
    ? checkpointLink({ threadId, checkpointNs, checkpointId })
    : threadLink(threadId);
  return <a href={href}>{name}</a>;
}
