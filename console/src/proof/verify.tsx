/** Verification: its button, its verdicts so far, and its outcome. */
import { BadgeCheck } from "lucide";
import { FlushButton } from "../operations/flush.tsx";
import { Note, ProblemNote } from "../parts/problem.tsx";
import { count, counted } from "../words.ts";
import { VerdictList } from "./verdict_list.tsx";
import { KIND_WORDS, KINDS, outcomeOf } from "./verdicts.ts";
import type { Run, Verifying } from "./verifying.ts";

interface VerifySectionProps {
  verifying: Verifying;
  /** Number of checkpoints of the thread, as far as known. */
  size: number;
}

export function VerifySection({ verifying, size }: VerifySectionProps) {
  const { run, start, stop } = verifying;
  const { phase, log } = run;
  const isRunning = phase === "running";
  return (
    <section class="card" aria-label="Verify">
      <div class="proof-head">
        <h2>Verify</h2>
        {isRunning ? (
          <button type="button" onClick={stop}>
            Stop
          </button>
        ) : (
          <button type="button" class="primary" onClick={start}>
            {phase === "idle" ? "Verify" : "Verify again"}
          </button>
        )}
      </div>
      {phase === "idle" && (
        <p class="quiet">
          Reads every stored byte of this thread back from the blob store, past every cache, and
          compares the bytes with the recorded hashes, the manifest and the journal. Changes
          nothing.
        </p>
      )}
      {isRunning && <Progress done={log.size} size={size} />}
      <div class="proof-outcome">
        <OutcomeNote run={run} onFlushed={start} />
      </div>
      {phase !== "idle" && (
        <ul class="counts" aria-label="Verdicts">
          {KINDS.map((kind) => (
            <li key={kind} class={log.count(kind) > 0 ? KIND_WORDS[kind][1] : ""}>
              <strong>{count(log.count(kind))}</strong> {KIND_WORDS[kind][0]}
            </li>
          ))}
        </ul>
      )}
      {log.size > 0 && <VerdictList run={run} />}
    </section>
  );
}

function Progress({ done, size }: { done: number; size: number }) {
  return (
    <p class="proof-progress">
      <progress
        aria-label="Checkpoints verified"
        {...(size > 0 ? { max: size, value: Math.min(done, size) } : {})}
      />
      <span>
        {count(done)}
        {size > 0 && ` of ${counted(Math.max(size, done), "checkpoint")}`}
      </span>
    </p>
  );
}

/** The meaning of a run that has ended. */
function OutcomeNote({ run, onFlushed }: { run: Run; onFlushed: () => void }) {
  const { phase, log, total, problem } = run;
  if (phase === "failed" && problem) {
    return (
      <>
        <ProblemNote problem={problem} />
        <p>
          Verification did not finish. The {counted(log.size, "verdict")} below remain valid;
          nothing is known about the other checkpoints.
        </p>
      </>
    );
  }
  if (phase === "stopped") {
    return (
      <Note kind="warn" title="Stopped" role="status">
        <p>
          {counted(log.size, "verdict")} came before the stop. Nothing is known about the other
          checkpoints.
        </p>
      </Note>
    );
  }
  if (!total) {
    return null;
  }
  const outcome = outcomeOf(log, total);
  return (
    <Note
      kind={outcome.kind}
      title={outcome.title}
      {...(outcome.kind === "good" ? { icon: BadgeCheck } : {})}
      role={outcome.kind === "bad" ? "alert" : "status"}
    >
      {outcome.sentences.map((sentence) => (
        <p key={sentence}>{sentence}</p>
      ))}
      {outcome.flush && <FlushButton onDone={onFlushed} />}
    </Note>
  );
}
