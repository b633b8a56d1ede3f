/** All threads by state, as one answer: three listings of the contract, latest change first. */
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { Thread, ThreadState } from "@contract/thread_pb.js";
import { ThreadOrder } from "@contract/thread_service_pb.js";
import type { ThreadFilter } from "../links.ts";
import { threads } from "../server/calls.ts";
import { AGES, GROUPS, type Group, withoutTwins } from "./groups.ts";

/** Threads of a group that a page shows at first. */
export const FIRST_PAGE = 100;
/** Most threads of a group that a name is looked for in. */
export const NAMED_AMONG = 1000;
const MOST_PER_CALL = 1000;
const HOUR_MS = 3_600_000;

export interface Listing {
  groups: Group[];
  /** What was asked for: listings of the same request differ only by what happened meanwhile. */
  request: string;
  /** Duration of the calls. */
  tookMs: number;
}

/** Number of threads to list in each state; a state that is missing: `FIRST_PAGE`. */
export type Sizes = Partial<Record<ThreadState, number>>;

/** List the threads that match a filter; the filter does not have the name of a thread. */
export async function listThreads(
  filter: ThreadFilter,
  sizes: Sizes,
  signal: AbortSignal,
): Promise<Listing> {
  const begun = Date.now();
  const listed = GROUPS.filter(({ name }) => !filter.state || filter.state === name);
  const groups = await Promise.all(
    listed.map(({ state }) => listGroup(state, filter, sizes[state] ?? FIRST_PAGE, signal)),
  );
  const { state, since, agent, label } = filter;
  return {
    groups: withoutTwins(groups),
    request: JSON.stringify([state, since, agent, label, sizes]),
    tookMs: Date.now() - begun,
  };
}

async function listGroup(
  state: ThreadState,
  { agent: agentId = "", label = "", since = "" }: ThreadFilter,
  size: number,
  signal: AbortSignal,
): Promise<Group> {
  const hours = AGES.find(({ name }) => name === since)?.hours;
  const changed = hours ? { changedAfter: timestampFromMs(Date.now() - hours * HOUR_MS) } : {};
  const filters = { state, agentId, label, order: ThreadOrder.LATEST, ...changed };
  const found: Thread[] = [];
  let pageToken = "";
  do {
    const pageSize = Math.min(MOST_PER_CALL, size - found.length);
    const answer = await threads.listThreads({ ...filters, pageSize, pageToken }, { signal });
    found.push(...answer.threads);
    pageToken = answer.nextPageToken;
  } while (pageToken && found.length < size);
  return { state, threads: found, more: pageToken !== "" };
}
