/** Adopts a hand-off: reads a descriptor, and shows the stages as they are reached. */
import { Durability } from "@contract/checkpoint_pb.js";
import { type Adoption, AdoptStage } from "@contract/handoff_service_pb.js";
import { Check, Circle, LoaderCircle, X } from "lucide";
import { useEffect, useRef, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { namedThread } from "../actions/checkpoint_names.ts";
import { Advanced } from "../actions/durability.tsx";
import { ContinueRun } from "../actions/what_next/continue_run.tsx";
import { suggest } from "../actions/what_next/next_steps.ts";
import { checkpointLink, inboxLink, threadLink } from "../links.ts";
import { Field, TextField } from "../parts/fields.tsx";
import { Icon } from "../parts/icon.tsx";
import { Identifier } from "../parts/labels.tsx";
import { Note, ProblemNote } from "../parts/problem.tsx";
import { Title } from "../parts/title.tsx";
import { handoffs } from "../server/calls.ts";
import { isCancelled, type Problem, problemOf } from "../server/problems.ts";
import { bytes, oneLine } from "../words.ts";
import {
  advance,
  BEGINNING,
  failedAt,
  hashesOf,
  type Progress,
  STAGES,
  stateOf,
} from "./adoption.ts";
import { DescriptorProblem, readDescriptor, signersIn } from "./descriptor.ts";
import "./handoff.css";
import { newRequestId } from "../server/request_id.ts";

interface Failure {
  problem: Problem;
  hashes: ReturnType<typeof hashesOf>;
}

/** Size of the largest file that is read; a descriptor has a few hundred bytes. */
const LARGEST_FILE = 64 * 1024;

export default function AdoptPage() {
  const { offer = "" } = useLocation().query;
  return <Adopt key={offer} offer={offer} />;
}

/** @param offer - ID of an offer of an inbox; empty: a person enters a descriptor. */
function Adopt({ offer }: { offer: string }) {
  const [text, setText] = useState("");
  const [newThreadId, setNewThreadId] = useState("");
  const [signers, setSigners] = useState("");
  const [durability, setDurability] = useState(Durability.CERTIFIED);
  const [wrong, setWrong] = useState("");
  const [progress, setProgress] = useState<Progress>();
  const [failure, setFailure] = useState<Failure>();
  const request = useRef({ id: "", of: "" });
  const leaving = useRef(new AbortController());
  useEffect(() => () => leaving.current.abort(), []);
  const busy = progress !== undefined && !progress.adoption && !failure;

  const adopt = async (event: Event) => {
    event.preventDefault();
    const form = readForm(offer, text, signers);
    if (form instanceof DescriptorProblem) {
      setWrong(form.message);
      return;
    }
    // A retry of the same adoption repeats the same request ID, so the server adopts only once.
    const of = JSON.stringify([text, newThreadId, signers, durability]);
    if (request.current.of !== of) {
      request.current = { id: newRequestId(), of };
    }
    setWrong("");
    setFailure(undefined);
    setProgress(BEGINNING);
    try {
      let now = BEGINNING;
      const sent = { ...form, newThreadId, durability, requestId: request.current.id };
      for await (const frame of handoffs.adoptHandoff(sent, { signal: leaving.current.signal })) {
        now = advance(now, frame);
        setProgress(now);
      }
      if (!now.adoption) {
        throw new Error("The stream of the server ended without an adoption.");
      }
      suggestRun(now.adoption);
    } catch (error) {
      if (!isCancelled(error)) {
        const hashes = hashesOf(error);
        setProgress((before) => failedAt(before ?? BEGINNING, hashes));
        setFailure({ problem: problemOf(error), hashes });
      }
    }
  };

  return (
    <>
      <div class="page-head">
        <Title text="Adopt a hand-off" />
      </div>
      <div class="adopt">
        <form class="card" onSubmit={adopt} aria-label="Adopt">
          <p>
            Makes a new thread from a checkpoint that{" "}
            {offer ? "is offered here" : "another team handed off"}. The server checks the hash of
            the blob before it writes anything.{" "}
            {!offer && "Both servers must use the same blob store."}
          </p>
          {offer ? (
            <Offered offer={offer} />
          ) : (
            <>
              <Field
                label="Descriptor"
                hint="JSON from the sender. Paste the text, or open the file."
              >
                {(id, described) => (
                  <textarea
                    id={id}
                    class="descriptor-text"
                    spellcheck={false}
                    required
                    aria-describedby={described}
                    value={text}
                    onInput={(event) => setText(event.currentTarget.value)}
                  />
                )}
              </Field>
              <OpenFile onText={setText} onProblem={setWrong} />
            </>
          )}
          <TextField
            label="ID of the new thread"
            value={newThreadId}
            onInput={setNewThreadId}
            hint="Optional. Without an ID, the server makes one."
          />
          <Advanced durability={durability} onChange={setDurability}>
            <TextField
              label="Required signers"
              value={signers}
              onInput={setSigners}
              hint="Optional. Public keys of servers that you trust: one of them must have signed the hand-off."
            />
          </Advanced>
          {wrong && (
            <Note kind="bad" role="alert">
              <p>{wrong}</p>
            </Note>
          )}
          <div class="buttons">
            <button type="submit" class="primary" disabled={busy}>
              {busy ? "Adopting…" : "Adopt"}
            </button>
          </div>
        </form>
        <section class="card" aria-label="Progress">
          <h2>Progress</h2>
          {progress ? (
            <Stages progress={progress} failed={failure !== undefined} />
          ) : (
            <p class="quiet">The stages appear here.</p>
          )}
          {failure && <Failed {...failure} verified={isVerified(progress)} />}
          {progress?.adoption && <Done adoption={progress.adoption} />}
        </section>
      </div>
    </>
  );
}

/** The offer in the place of a descriptor. */
function Offered({ offer }: { offer: string }) {
  return (
    <p>
      Offer <Identifier id={offer} what="the ID of the offer" />: the first adoption gets it.{" "}
      <a href={inboxLink()}>Back to the inbox</a>
    </p>
  );
}

function readForm(offer: string, text: string, signers: string) {
  try {
    const of = offer ? { handoffId: offer } : { descriptor: readDescriptor(text) };
    return { ...of, requiredSigners: signersIn(signers) };
  } catch (error) {
    if (error instanceof DescriptorProblem) {
      return error;
    }
    throw error;
  }
}

/** Show on the page of the new thread, too, how its run continues. */
function suggestRun({ adoptedFrom, newThreadId, checkpointId }: Adoption) {
  suggest({
    what: `Adopted ${oneLine(adoptedFrom, 120)} as ${namedThread(newThreadId)}.`,
    madeOn: "",
    head: { threadId: newThreadId, checkpointNs: "", checkpointId },
    link: "Open the new thread",
  });
}

function isVerified(progress: Progress | undefined): boolean {
  return (progress?.stage ?? AdoptStage.UNSPECIFIED) >= AdoptStage.VERIFIED;
}

interface OpenFileProps {
  onText: (text: string) => void;
  onProblem: (problem: string) => void;
}

function OpenFile({ onText, onProblem }: OpenFileProps) {
  const open = async (input: HTMLInputElement) => {
    const file = input.files?.[0];
    if (!file) {
      return;
    }
    if (file.size > LARGEST_FILE) {
      onProblem(`The file has ${bytes(file.size)}. A descriptor is smaller than 64 KiB.`);
      return;
    }
    onProblem("");
    onText(await file.text());
  };
  return (
    <Field label="Or open a file">
      {(id) => (
        <input
          id={id}
          type="file"
          accept=".json,application/json"
          onChange={(event) => open(event.currentTarget)}
        />
      )}
    </Field>
  );
}

const STAGE_ICONS = { done: Check, now: LoaderCircle, failed: X, later: Circle };

/** The stages as a list that screen readers announce as it changes. */
function Stages({ progress, failed }: { progress: Progress; failed: boolean }) {
  const words = { done: "done", now: "now", failed: "failed", later: "not yet" };
  return (
    <ol class="stages" aria-live="polite">
      {STAGES.map(([stage, text]) => {
        const state = stateOf(stage, progress.stage, failed);
        const size = stage === AdoptStage.FETCHING && progress.fetchedBytes > 0n;
        return (
          <li key={stage} data-state={state}>
            <Icon of={STAGE_ICONS[state]} />
            {text}
            {size && `: ${bytes(progress.fetchedBytes)}`}{" "}
            <span class="quiet">({words[state]})</span>
          </li>
        );
      })}
    </ol>
  );
}

function Failed({ problem, hashes, verified }: Failure & { verified: boolean }) {
  return (
    <>
      <ProblemNote problem={problem} />
      {hashes && (
        <dl class="facts">
          <dt>Hash in the descriptor</dt>
          <dd>
            <code>{oneLine(hashes.expected)}</code>
          </dd>
          <dt>Hash of the bytes</dt>
          <dd>
            <code>{oneLine(hashes.actual)}</code>
          </dd>
        </dl>
      )}
      <p>
        {verified
          ? "The bytes were right. Adopt again with the same fields: if the thread exists already, the answer names it."
          : "Nothing was written."}
      </p>
    </>
  );
}

function Done({ adoption }: { adoption: Adoption }) {
  const { newThreadId, checkpointId } = adoption;
  return (
    <>
      <h3>Adopted</h3>
      <dl class="facts">
        <dt>New thread</dt>
        <dd>
          <a href={threadLink(newThreadId)}>{oneLine(newThreadId)}</a>
        </dd>
        <dt>Checkpoint</dt>
        <dd>
          <Identifier
            id={checkpointId}
            what="the checkpoint's ID"
            href={checkpointLink({ threadId: newThreadId, checkpointNs: "", checkpointId })}
          />
        </dd>
        <dt>From</dt>
        <dd>{oneLine(adoption.adoptedFrom)}</dd>
        <dt>Signed by</dt>
        <dd>{adoption.signer ? <code>{oneLine(adoption.signer)}</code> : "nobody"}</dd>
        {adoption.blobId && (
          <>
            <dt>Blob</dt>
            <dd>
              <code>{oneLine(adoption.blobId)}</code>
            </dd>
          </>
        )}
      </dl>
      <ContinueRun threadId={newThreadId} />
    </>
  );
}
