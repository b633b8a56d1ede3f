/** Displays of a fact: times, identifiers, states, badges. */
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { ThreadState } from "@contract/thread_pb.js";
import { signal } from "@preact/signals";
import { Check, Copy as Copies } from "lucide";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { age, ago, moment, oneLine, short } from "../words.ts";
import { Icon } from "./icon.tsx";

const CLOCK_MS = 10_000;

const now = signal(Date.now());
window.setInterval(() => {
  now.value = Date.now();
}, CLOCK_MS);

interface WhenProps {
  time: Timestamp | undefined;
  /** Whether the text is "3 min" instead of "3 minutes ago", for a column. */
  short?: boolean;
}

/** A moment relative to the present; the text is updated as time passes. */
export function When({ time, short: isShort = false }: WhenProps) {
  if (!time) {
    return <span class="quiet">–</span>;
  }
  const words = isShort ? age : ago;
  return <time title={moment(time)}>{words(time, Math.max(now.value, Date.now()))}</time>;
}

/**
 * Copies text; reports the result at the button.
 *
 * Browsers let a page write to the clipboard only if the page came from https or localhost; other
 * pages have no button.
 */
export function Copy({ text, what }: { text: string; what: string }) {
  const [copied, setCopied] = useState(false);
  if (!window.isSecureContext) {
    return null;
  }
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    window.setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button
      type="button"
      class="icon-button copy"
      onClick={copy}
      aria-label={`Copy ${what}`}
      title={`Copy ${what}`}
    >
      <Icon of={copied ? Check : Copies} />
      {copied && <span class="unseen">copied</span>}
    </button>
  );
}

/** A shortened ID, whole on hover and when copied. */
export function Identifier({ id, what, href }: { id: string; what: string; href?: string }) {
  const text = <code title={id}>{oneLine(short(id))}</code>;
  return (
    <span class="identifier">
      {href ? <a href={href}>{text}</a> : text}
      <Copy text={id} what={what} />
    </span>
  );
}

const STATES: Record<ThreadState, [string, string]> = {
  [ThreadState.UNSPECIFIED]: ["unknown", "quiet"],
  [ThreadState.IDLE]: ["idle", "quiet"],
  [ThreadState.INTERRUPTED]: ["waits for a person", "warn"],
  [ThreadState.FAILED]: ["failed", "bad"],
};

export function State({ state }: { state: ThreadState }) {
  const [text, kind] = STATES[state];
  return <Badge kind={kind}>{text}</Badge>;
}

export function Badge({ kind = "", children }: { kind?: string; children: ComponentChildren }) {
  return <span class={`badge ${kind}`}>{children}</span>;
}

/** Words for screen readers alone: they name what a column shows. */
export function Unseen({ children }: { children: ComponentChildren }) {
  return <span class="unseen">{children}</span>;
}
