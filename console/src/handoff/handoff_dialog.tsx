/** Hands a checkpoint off: asks for the receiver, then shows the descriptor to send. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import type { HandoffDescriptor } from "@contract/handoff_service_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import { useEffect, useRef, useState } from "preact/hooks";
import { named, placeOf } from "../actions/checkpoint_names.ts";
import { checkpointLink, inboxLink } from "../links.ts";
import { Ask, Dialog } from "../parts/ask.tsx";
import { Field, TextField } from "../parts/fields.tsx";
import { Copy } from "../parts/labels.tsx";
import { say } from "../parts/notices.tsx";
import { Note } from "../parts/problem.tsx";
import { handoffs } from "../server/calls.ts";
import { oneLine, visible } from "../words.ts";
import { writeDescriptor } from "./descriptor.ts";
import "./handoff.css";
import { newRequestId } from "../server/request_id.ts";
import { QrCode } from "./qr_code.tsx";

interface HandoffDialogProps {
  checkpoint: Checkpoint;
  thread: Thread | undefined;
  onClose: () => void;
}

export function HandoffDialog({ checkpoint, onClose }: HandoffDialogProps) {
  const [made, setMade] = useState<Answer>();
  return made ? (
    <Made {...made} onClose={onClose} />
  ) : (
    <HandOff checkpoint={checkpoint} onMade={setMade} onClose={onClose} />
  );
}

interface Answer {
  descriptor: HandoffDescriptor;
  /** Whether the server offers the hand-off in the inbox of its receiver. */
  isOffered: boolean;
}

/** Times after which an offer expires, in seconds; 0: never. */
const EXPIRIES: [string, number][] = [
  ["never", 0],
  ["after 1 hour", 3600],
  ["after 1 day", 86_400],
  ["after 7 days", 7 * 86_400],
];

interface HandOffProps {
  checkpoint: Checkpoint;
  onMade: (answer: Answer) => void;
  onClose: () => void;
}

function HandOff({ checkpoint, onMade, onClose }: HandOffProps) {
  const ref = placeOf(checkpoint.ref);
  const [requestId] = useState(newRequestId);
  const [toAgent, setToAgent] = useState("");
  const [recipient, setRecipient] = useState("");
  const [includeKey, setIncludeKey] = useState(false);
  const [expires, setExpires] = useState(0);
  const made = useRef<Answer | undefined>(undefined);
  const create = async () => {
    const expiresIn = expires ? { expiresIn: { seconds: BigInt(expires), nanos: 0 } } : {};
    const receiver = { toAgent, includeKey, recipient: recipient.trim() };
    const request = { ref, ...receiver, ...expiresIn, requestId };
    const { descriptor, handoffId } = await handoffs.createHandoff(request);
    if (!descriptor) {
      throw new Error("The server sent no descriptor.");
    }
    say(`Handed ${named(checkpoint)} off${toAgent && ` to “${oneLine(toAgent, 60)}”`}.`, {
      href: checkpointLink(ref),
      text: "Open the checkpoint",
    });
    made.current = { descriptor, isOffered: handoffId !== "" };
  };
  return (
    <Ask
      title="Hand off"
      confirm="Hand off"
      onConfirm={create}
      onClose={() => (made.current ? onMade(made.current) : onClose())}
    >
      <p>
        Stores {named(checkpoint)} as one blob, with everything needed to continue, and offers it in
        the inbox of the agent. An agent that has the descriptor and uses the same blob store can
        adopt the checkpoint, too. This thread does not change.
      </p>
      <TextField
        label="To agent"
        value={toAgent}
        onInput={setToAgent}
        hint="The agent that will drive the new thread. May be empty."
      />
      <Field label="The offer expires">
        {(id) => (
          <select
            id={id}
            value={String(expires)}
            onChange={(event) => setExpires(Number(event.currentTarget.value))}
          >
            {EXPIRIES.map(([text, seconds]) => (
              <option key={seconds} value={String(seconds)}>
                {text}
              </option>
            ))}
          </select>
        )}
      </Field>
      <details class="advanced">
        <summary>Advanced</summary>
        <p class="hint">
          For a receiver with other keys, if this server seals what it stores. Without either of
          these, only servers with the same keys open the hand-off.
        </p>
        <TextField
          label="Recipient"
          value={recipient}
          onInput={setRecipient}
          placeholder="age1…"
          hint="A public key of the receiving server. Only that server opens the hand-off, so you may send the descriptor over any channel."
        />
        <label class="choice">
          <input
            type="checkbox"
            checked={includeKey}
            onChange={(event) => setIncludeKey(event.currentTarget.checked)}
          />
          <span>
            Put the key into the descriptor. Whoever reads the descriptor can then read the
            checkpoint: send it only over a channel that nobody else reads.
          </span>
        </label>
      </details>
    </Ask>
  );
}

function Made({ descriptor, isOffered, onClose }: Answer & { onClose: () => void }) {
  const { toAgent } = descriptor;
  const text = writeDescriptor(descriptor);
  const compact = JSON.stringify(JSON.parse(text));
  return (
    <Dialog title="The descriptor" onClose={onClose}>
      <p>
        {isOffered && (
          <>
            Agents of this server find the hand-off in{" "}
            <a href={inboxLink(toAgent ? { agent: toAgent } : { unnamed: "1" })} onClick={onClose}>
              the inbox
            </a>
            .{" "}
          </>
        )}
        Send the descriptor to a receiver on another server: without the descriptor, that server
        does not find the blob.
      </p>
      {descriptor.key && (
        <Note kind="warn">
          <p>The descriptor has the key: whoever reads the descriptor can read the checkpoint.</p>
        </Note>
      )}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls the overflow */}
      <pre class="descriptor" tabIndex={0}>
        {visible(text)}
      </pre>
      <div class="actions descriptor-actions">
        <Copy text={text} what="the descriptor" />
        <Download text={text} name={`handoff-${descriptor.checkpointId}.json`} />
      </div>
      <QrCode text={compact} label="QR code of the descriptor, the same JSON as above" />
      <div class="buttons">
        <button type="button" class="primary" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

/** A link that saves a text as a file, without a call to the server. */
function Download({ text, name }: { text: string; name: string }) {
  const [href, setHref] = useState("");
  useEffect(() => {
    const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    setHref(url);
    return () => URL.revokeObjectURL(url);
  }, [text]);
  return (
    <a class="button" href={href} download={name.replace(/[^\w.-]/g, "_")}>
      Download as a file
    </a>
  );
}
