/** Runs a verification: collects the server's verdicts, until the total or a stop. */
import type { VerificationTotal } from "@contract/thread_service_pb.js";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { threads } from "../server/calls.ts";
import { type Problem, problemOf } from "../server/problems.ts";
import { VerdictLog } from "./verdicts.ts";

const DRAW_MS = 100; // between two renders while verdicts arrive

export type Phase = "idle" | "running" | "stopped" | "failed" | "done";

export interface Run {
  phase: Phase;
  log: VerdictLog;
  /** The server's total; only for a completed run. */
  total: VerificationTotal | undefined;
  /** The cause of a failed run. */
  problem: Problem | undefined;
  started: Date | undefined;
  finished: Date | undefined;
}

export interface Verifying {
  run: Run;
  start: () => void;
  stop: () => void;
}

const IDLE: Run = {
  phase: "idle",
  log: new VerdictLog(),
  total: undefined,
  problem: undefined,
  started: undefined,
  finished: undefined,
};

export function useVerification(threadId: string): Verifying {
  const [run, setRun] = useState<Run>(IDLE);
  const running = useRef<AbortController>(undefined);
  const start = useCallback(() => {
    running.current?.abort();
    const leaving = new AbortController();
    running.current = leaving;
    verify(threadId, leaving.signal, (next) => {
      if (running.current === leaving) {
        setRun(next);
      }
    });
  }, [threadId]);
  const stop = useCallback(() => running.current?.abort(), []);
  useEffect(
    () => () => {
      running.current?.abort();
      running.current = undefined;
    },
    [threadId],
  );
  return { run, start, stop };
}

async function verify(threadId: string, signal: AbortSignal, show: (run: Run) => void) {
  const log = new VerdictLog();
  const now: Run = { ...IDLE, phase: "running", log, started: new Date() };
  let drawn = 0;
  show(now);
  const end = (changed: Partial<Run>) => show({ ...now, ...changed, finished: new Date() });
  try {
    let total: VerificationTotal | undefined;
    for await (const { frame } of threads.verifyThread({ threadId }, { signal })) {
      if (frame.case === "verdict") {
        log.take(frame.value);
      } else if (frame.case === "total") {
        total = frame.value;
      }
      if (performance.now() - drawn > DRAW_MS) {
        drawn = performance.now();
        show({ ...now });
      }
    }
    end(total ? { phase: "done", total } : { phase: "failed", problem: noTotal() });
  } catch (error) {
    end(signal.aborted ? { phase: "stopped" } : { phase: "failed", problem: problemOf(error) });
  }
}

function noTotal(): Problem {
  return {
    title: "The verification ended early",
    message: "The server closed the stream before the total.",
    advice: "Verify again.",
    reason: "",
    passing: false,
  };
}
