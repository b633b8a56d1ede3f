/** What to do after a fork, a rollback, an edit or an adoption: a card for each change. */
import { X } from "lucide";
import { useEffect } from "preact/hooks";
import { checkpointLink, threadLink } from "../../links.ts";
import { done } from "../../parts/ask.tsx";
import { IconButton } from "../../parts/icon.tsx";
import { threads } from "../../server/calls.ts";
import { useLoad } from "../../server/loading.ts";
import { headOf } from "../checkpoint_names.ts";
import { ContinueRun } from "./continue_run.tsx";
import { dismiss, type NextStep, nextSteps } from "./next_steps.ts";

interface NextStepCardsProps {
  /** The thread of the page. */
  threadId: string;
  /** Changes when the thread may have changed. */
  version: string;
}

/** The cards of the changes that were made on a thread's page, and of those that made the thread. */
export function NextStepCards({ threadId, version }: NextStepCardsProps) {
  const shown = nextSteps.value.filter(
    ({ madeOn, head }) => madeOn === threadId || head.threadId === threadId,
  );
  return (
    <div role="status" class="next-steps">
      {shown.map((step) => (
        <NextStepCard
          key={JSON.stringify(step.head)}
          step={step}
          isMadeHere={step.madeOn === threadId}
          version={version}
        />
      ))}
    </div>
  );
}

interface NextStepCardProps {
  step: NextStep;
  isMadeHere: boolean;
  version: string;
}

function NextStepCard({ step, isMadeHere, version }: NextStepCardProps) {
  const { threadId, checkpointNs, checkpointId } = step.head;
  const { data, problem } = useLoad(
    async (signal) => (await threads.getThread({ threadId }, { signal })).thread,
    [threadId],
    [version, done.value],
  );
  const hasContinued = data !== undefined && headOf(data, checkpointNs) !== checkpointId;
  const isOver = hasContinued || problem?.reason === "THREAD_NOT_FOUND";
  useEffect(() => {
    if (isOver) {
      dismiss(step);
    }
  }, [isOver, step]);
  return (
    <div class="card next-step">
      <p class="next-step-what">
        <span>
          {step.what} {isMadeHere && <a href={linkToHead(step)}>{step.link}</a>}
        </span>
        <IconButton of={X} label="Dismiss" onClick={() => dismiss(step)} />
      </p>
      {checkpointNs === "" && <ContinueRun threadId={threadId} />}
    </div>
  );
}

/** Return the address of the head; a thread's own address follows the run as it continues. */
function linkToHead({ head }: NextStep): string {
  return head.checkpointNs === "" ? threadLink(head.threadId) : checkpointLink(head);
}
