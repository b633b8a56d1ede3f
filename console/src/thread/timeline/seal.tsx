/** The seal of a thread: how many of its checkpoints have the hash that was recorded. */
import type { VerificationTotal } from "@contract/thread_service_pb.js";
import { BadgeAlert, BadgeCheck, BadgeX, type IconNode } from "lucide";
import { useRef } from "preact/hooks";
import { proofLink } from "../../links.ts";
import { Icon } from "../../parts/icon.tsx";
import { type Outcome, outcomeOf, sealText } from "../../proof/verdicts.ts";
import { useVerification } from "../../proof/verifying.ts";
import { count } from "../../words.ts";

interface SealProps {
  threadId: string;
  /** Number of checkpoints of the thread. */
  size: number;
  /** Greatest sequence number of the thread's checkpoints. */
  newest: bigint;
}

/** Verifies on a click, and shows the outcome until the thread changes. */
export function Seal({ threadId, size, newest }: SealProps) {
  const { run, start, stop } = useVerification(threadId);
  const verified = useRef(newest);
  const verify = () => {
    verified.current = newest;
    start();
  };
  const { phase, log, total, problem } = run;
  if (phase === "running") {
    return (
      <p class="seal" role="status">
        <span class="quiet">
          {count(log.size)} of {count(Math.max(size, log.size))} verified
        </span>
        <button type="button" onClick={stop}>
          Stop
        </button>
      </p>
    );
  }
  const isOld = phase !== "idle" && verified.current !== newest;
  return (
    <p class="seal" role="status">
      {phase === "done" && total && (
        <Outcomes threadId={threadId} outcome={outcomeOf(log, total)} total={total} isOld={isOld} />
      )}
      {phase === "failed" && <span class="bad">{problem?.title ?? "The verification failed"}</span>}
      {(phase !== "done" || isOld) && (
        <button type="button" onClick={verify}>
          <Icon of={BadgeCheck} />
          {phase === "idle" ? "Verify" : "Verify again"}
        </button>
      )}
    </p>
  );
}

const ICONS: Record<Outcome["kind"], IconNode> = {
  good: BadgeCheck,
  warn: BadgeAlert,
  bad: BadgeX,
};

interface OutcomesProps {
  threadId: string;
  outcome: Outcome;
  total: VerificationTotal;
  isOld: boolean;
}

function Outcomes({ threadId, outcome, total, isOld }: OutcomesProps) {
  return (
    <a class={`seal-outcome ${isOld ? "old" : outcome.kind}`} href={proofLink(threadId, true)}>
      <Icon of={ICONS[outcome.kind]} />
      {sealText(outcome, total)}
      {isOld && ", before the last change"}
    </a>
  );
}
