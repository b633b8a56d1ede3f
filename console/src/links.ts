/** The addresses of the console's pages: every view has an address, and opens from it. */

export interface Ref {
  threadId: string;
  checkpointNs: string;
  checkpointId: string;
}

function address(path: string, parts: Record<string, string>): string {
  const query = new URLSearchParams();
  for (const [name, text] of Object.entries(parts)) {
    if (text) {
      query.set(name, text);
    }
  }
  const search = query.toString();
  return search ? `${path}?${search}` : path;
}

export interface ThreadFilter {
  q?: string;
  state?: string;
  agent?: string;
  label?: string;
  since?: string;
}

export function threadsLink(filter: ThreadFilter = {}): string {
  return address("/threads", { ...filter });
}

export function threadLink(threadId: string): string {
  return address("/thread", { id: threadId });
}

/** Return the address of a checkpoint, shown beside its thread's tree. */
export function checkpointLink(ref: Ref, tab = ""): string {
  const { threadId, checkpointNs, checkpointId } = ref;
  return address("/thread", { id: threadId, ns: checkpointNs, checkpoint: checkpointId, tab });
}

/** Return the address of the difference between two checkpoints. */
export function diffLink(from: Ref, to: Ref): string {
  return address("/diff", {
    from: from.threadId,
    from_ns: from.checkpointNs,
    from_checkpoint: from.checkpointId,
    to: to.threadId,
    to_ns: to.checkpointNs,
    to_checkpoint: to.checkpointId,
  });
}

/**
 * Return the address of the proof of a thread: verdicts, manifest, chain. With `run`, the page
 * verifies the thread at once.
 */
export function proofLink(threadId: string, run = false): string {
  return address("/proof", { thread: threadId, run: run ? "1" : "" });
}

export interface SearchFilter {
  agent?: string;
  /** A JSON object that the metadata must have. */
  filter?: string;
  /** Name of a mode; empty: the best mode that the server has. */
  mode?: string;
  limit?: string;
}

export function searchLink(query = "", thread = "", filter: SearchFilter = {}): string {
  return address("/search", { q: query, thread, ...filter });
}

export function snapshotsLink(snapshotId = ""): string {
  return address("/snapshots", { id: snapshotId });
}

/** Return the address of the page that adopts: an offer, or a descriptor that a person enters. */
export function adoptLink(handoffId = ""): string {
  return address("/adopt", { offer: handoffId });
}

export interface InboxFilter {
  /** Agent that receives the offers. */
  agent?: string;
  /** Not empty: only offers that name no agent. */
  unnamed?: string;
  thread?: string;
  /** Name of a state, or `all`; empty: open offers. */
  state?: string;
}

export function inboxLink(filter: InboxFilter = {}): string {
  return address("/inbox", { ...filter });
}

export const operationsLink = "/operations";

/** Return the address of a page with the server, to send to somebody. */
export function whole(link: string): string {
  return new URL(link, window.location.href).href;
}
