/** The filter of offers in the address of the page. Pure. */
import { HandoffState } from "@contract/handoff_service_pb.js";
import type { InboxFilter } from "../links.ts";
import type { Choice } from "../threads/groups.ts";

/** The states that a page shows; the first is the default. */
export const STATES: (Choice & { states: HandoffState[] })[] = [
  { name: "", title: "Open", states: [HandoffState.OFFERED] },
  { name: "adopted", title: "Adopted", states: [HandoffState.ADOPTED] },
  { name: "withdrawn", title: "Withdrawn", states: [HandoffState.WITHDRAWN] },
  { name: "expired", title: "Expired", states: [HandoffState.EXPIRED] },
  { name: "all", title: "All", states: [] },
];

/** Return the filter of an address, without a state that names nothing. */
export function filterOf(query: Record<string, string>): Required<InboxFilter> {
  const { agent = "", thread = "", unnamed = "", state = "" } = query;
  const known = STATES.some(({ name }) => name === state);
  return { agent, thread, unnamed: agent ? "" : unnamed, state: known ? state : "" };
}

/** Return the inbox that a filter names, for a call; undefined: every inbox. */
export function inboxOf({ agent, unnamed }: InboxFilter): string | undefined {
  return agent || (unnamed ? "" : undefined);
}
