/** Follows a thread: lists its checkpoints, then applies each change as it happens. */
import { Code, ConnectError } from "@connectrpc/connect";
import { View } from "@contract/checkpoint_pb.js";
import { useEffect, useRef, useState } from "preact/hooks";
import { checkpoints, history } from "../server/calls.ts";
import { type Problem, problemOf } from "../server/problems.ts";
import { signIns } from "../server/session.ts";
import { useVisible } from "../server/visible.ts";
import { keyOf, ThreadLog } from "./log.ts";

const DRAW_MS = 100; // between two renders of a log that changes
const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 5000;

/** State of the page's connection to the thread. */
export type Standing = "listing" | "live" | "lost" | "deleted" | "began-again";

export interface Following {
  log: ThreadLog;
  standing: Standing;
  /** Why the connection was lost, or why the thread was not found. */
  problem: Problem | undefined;
  /** Rises with every change of the log. */
  version: number;
}

/** Follow a thread while the page is visible; a hidden page has no connection. */
export function useThread(threadId: string): Following {
  const [following, setFollowing] = useState<Following>(begin);
  const visible = useVisible();
  const follower = useRef<Follower>(undefined);
  useEffect(() => {
    follower.current = new Follower(threadId, setFollowing);
    setFollowing(begin());
  }, [threadId]);
  useEffect(() => {
    const leaving = new AbortController();
    if (visible) {
      follower.current?.follow(leaving.signal);
    }
    return () => leaving.abort();
  }, [threadId, visible, signIns.value]);
  return following;
}

function begin(): Following {
  return { log: new ThreadLog(), standing: "listing", problem: undefined, version: 0 };
}

class Follower {
  private readonly log = new ThreadLog();
  private cursor: Uint8Array = new Uint8Array();
  private standing: Standing = "listing";
  private problem: Problem | undefined;
  private version = 0;
  private timer = 0;

  constructor(
    private readonly threadId: string,
    private readonly show: (following: Following) => void,
  ) {}

  /** Follow until the signal stops it; a later call continues at the same position. */
  async follow(signal: AbortSignal): Promise<void> {
    let wait = FIRST_RETRY_MS;
    while (!signal.aborted && this.standing !== "began-again") {
      try {
        for await (const { frame } of history.watchThread(this.asked(), { signal })) {
          if (frame.case === "event") {
            wait = FIRST_RETRY_MS;
            await this.take(frame.value, signal);
          }
        }
      } catch (error) {
        if (signal.aborted) {
          return;
        }
        this.fail(error);
        if (ConnectError.from(error).code === Code.NotFound) {
          return;
        }
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(2 * wait, LONGEST_RETRY_MS);
    }
  }

  private asked() {
    const { threadId, cursor } = this;
    return { threadId, cursor, fromNow: true, view: View.STEP };
  }

  private async take(event: Parameters<ThreadLog["take"]>[0], signal: AbortSignal): Promise<void> {
    const listed = this.cursor.length > 0;
    const consequence = this.log.take(event);
    if (!listed || consequence === "list-again") {
      await this.list(event.seq, signal);
    }
    this.cursor = event.cursor;
    this.problem = undefined;
    if (consequence === "deleted" || consequence === "began-again") {
      this.standing = consequence;
    } else if (this.standing !== "deleted") {
      this.standing = "live";
    }
    if (consequence !== "none" || !listed) {
      this.changed();
    }
  }

  private async list(seq: bigint, signal: AbortSignal): Promise<void> {
    const listed = new Set<string>();
    const request = { threadId: this.threadId, view: View.STEP };
    for await (const { frame } of checkpoints.listCheckpoints(request, { signal })) {
      if (frame.case === "checkpoint") {
        const { checkpointNs = "", checkpointId = "" } = frame.value.ref ?? {};
        listed.add(keyOf(checkpointNs, checkpointId));
        this.log.put(frame.value);
        this.changed();
      }
    }
    this.log.keepOnly(listed, seq);
  }

  private fail(error: unknown): void {
    this.problem = problemOf(error);
    if (this.problem.reason === "CURSOR_COMPACTED") {
      this.cursor = new Uint8Array(); // events were lost meanwhile: list again
    }
    if (this.standing !== "deleted") {
      this.standing = "lost";
    }
    this.changed();
  }

  /** Show the log soon; many changes are shown at once. */
  private changed(): void {
    this.version += 1;
    this.timer ||= window.setTimeout(() => {
      this.timer = 0;
      const { log, standing, problem, version } = this;
      this.show({ log, standing, problem, version });
    }, DRAW_MS);
  }
}
