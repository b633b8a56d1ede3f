/** Threads by state, as the page shows them. Pure. */
import { type Thread, ThreadState } from "@contract/thread_pb.js";
import type { ThreadFilter } from "../links.ts";

export interface Choice {
  /** The value in the address of the page. */
  name: string;
  title: string;
}

export const GROUPS: (Choice & { state: ThreadState })[] = [
  { name: "interrupted", title: "Waiting for a person", state: ThreadState.INTERRUPTED },
  { name: "failed", title: "Failed", state: ThreadState.FAILED },
  { name: "idle", title: "Idle", state: ThreadState.IDLE },
];

/** Choices for the time since the last change of a thread. */
export const AGES: (Choice & { hours: number })[] = [
  { name: "1h", title: "in the last hour", hours: 1 },
  { name: "1d", title: "in the last day", hours: 24 },
  { name: "7d", title: "in the last 7 days", hours: 7 * 24 },
  { name: "30d", title: "in the last 30 days", hours: 30 * 24 },
];

/** Return the filter of an address, without values that name nothing. */
export function filterOf(query: Record<string, string>): Required<ThreadFilter> {
  const of = (name: string) => query[name] ?? "";
  const known = (name: string, choices: Choice[]) =>
    choices.find((choice) => choice.name === of(name))?.name ?? "";
  return {
    q: of("q"),
    state: known("state", GROUPS),
    since: known("since", AGES),
    agent: of("agent"),
    label: of("label"),
  };
}

/** The threads in one state. */
export interface Group {
  state: ThreadState;
  threads: Thread[];
  /** Whether the server has more threads in this state. */
  more: boolean;
}

/**
 * Return the groups with each thread once, as it was last.
 *
 * The groups are listed by calls of their own, so a thread that changed meanwhile may be in two.
 */
export function withoutTwins(groups: Group[]): Group[] {
  const latest = new Map<string, Thread>();
  for (const thread of groups.flatMap((group) => group.threads)) {
    const other = latest.get(thread.threadId);
    if (!other || isLater(thread, other)) {
      latest.set(thread.threadId, thread);
    }
  }
  return groups.map((group) => ({
    ...group,
    threads: group.threads.filter((thread) => latest.get(thread.threadId) === thread),
  }));
}

function isLater(thread: Thread, other: Thread): boolean {
  return thread.incarnation === other.incarnation
    ? thread.seq > other.seq
    : thread.incarnation > other.incarnation;
}

/** Return the shown groups with later facts of their threads, but with every thread in its place. */
export function inPlace(shown: Group[], later: Group[]): Group[] {
  const known = new Map(
    later.flatMap(({ threads: found }) => found.map((thread) => [thread.threadId, thread])),
  );
  return shown.map((group) => ({
    ...group,
    threads: group.threads.map((thread) => known.get(thread.threadId) ?? thread),
  }));
}
