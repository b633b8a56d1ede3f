/** Lists offers of hand-offs. */
import type { Handoff } from "@contract/handoff_service_pb.js";
import type { InboxFilter } from "../links.ts";
import { handoffs } from "../server/calls.ts";
import { inboxOf, STATES } from "./filter.ts";

const MOST_PER_CALL = 1000;

export interface Listing {
  offers: Handoff[];
  /** Whether the server has more offers. */
  more: boolean;
  /** What the server says about the listing. */
  warnings: string[];
  /** Duration of the calls. */
  tookMs: number;
}

/** List at most `size` offers that match a filter, oldest first. */
export async function listOffers(
  filter: InboxFilter,
  size: number,
  signal: AbortSignal,
): Promise<Listing> {
  const begun = Date.now();
  const { thread: threadId = "", state } = filter;
  const toAgent = inboxOf(filter);
  const request = {
    ...(toAgent === undefined ? {} : { toAgent }),
    threadId,
    states: STATES.find(({ name }) => name === state)?.states ?? [],
  };
  const offers: Handoff[] = [];
  const warnings = new Set<string>();
  let pageToken = "";
  do {
    const pageSize = Math.min(MOST_PER_CALL, size - offers.length);
    const page = await handoffs.listHandoffs({ ...request, pageSize, pageToken }, { signal });
    offers.push(...page.handoffs);
    for (const { message } of page.warnings) {
      warnings.add(message);
    }
    pageToken = page.nextPageToken;
  } while (pageToken && offers.length < size);
  return { offers, more: pageToken !== "", warnings: [...warnings], tookMs: Date.now() - begun };
}
