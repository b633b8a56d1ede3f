/** Follows an inbox: says when its offers have changed. */
import { Code, ConnectError } from "@connectrpc/connect";
import { useEffect, useState } from "preact/hooks";
import { handoffs } from "../server/calls.ts";
import { signIns } from "../server/session.ts";
import { useVisible } from "../server/visible.ts";

const SHOW_MS = 500; // between two listings of an inbox that changes
const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 5000;
const REFUSALS = [Code.PermissionDenied, Code.Unauthenticated, Code.InvalidArgument];

interface Watch {
  /** Rises with the changes of the inbox. */
  version: number;
  /** Whether the server reports each change now. */
  isLive: boolean;
}

/**
 * Watch the offers to an agent while the page is visible.
 *
 * @param toAgent - The agent; empty: offers that name no agent; undefined: nothing is watched,
 *   because the contract has no watch of every inbox.
 */
export function useInbox(toAgent: string | undefined): Watch {
  const [version, setVersion] = useState(0);
  const [isLive, setLive] = useState(false);
  const visible = useVisible();
  useEffect(() => {
    const leaving = new AbortController();
    let timer = 0;
    const changed = () => {
      timer ||= window.setTimeout(() => {
        timer = 0;
        setVersion((before) => before + 1);
      }, SHOW_MS);
    };
    setLive(false);
    if (toAgent !== undefined && visible) {
      follow(toAgent, leaving.signal, changed, setLive);
    }
    return () => {
      leaving.abort();
      window.clearTimeout(timer);
    };
  }, [toAgent, visible, signIns.value]);
  return { version, isLive };
}

async function follow(
  toAgent: string,
  signal: AbortSignal,
  changed: () => void,
  setLive: (isLive: boolean) => void,
): Promise<void> {
  let wait = FIRST_RETRY_MS;
  while (!signal.aborted) {
    let isLive = false;
    try {
      // The open offers come first, which the page lists itself; then a frame without an offer.
      for await (const { handoff } of handoffs.watchHandoffs({ toAgent }, { signal })) {
        wait = FIRST_RETRY_MS;
        if (isLive ? handoff : !handoff) {
          isLive = true;
          setLive(true);
          changed();
        }
      }
    } catch (error) {
      if (signal.aborted || REFUSALS.includes(ConnectError.from(error).code)) {
        return; // the listing says why
      }
    }
    setLive(false);
    changed();
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(2 * wait, LONGEST_RETRY_MS);
  }
}
