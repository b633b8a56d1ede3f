/** Reports of completed actions, where they do not cover the page; screen readers read them out. */
import { signal } from "@preact/signals";
import { CircleCheck, X } from "lucide";
import { Icon, IconButton } from "./icon.tsx";

interface Notice {
  id: number;
  text: string;
  link: { href: string; text: string } | undefined;
}

const LONGEST = 5;
const BRIEF_MS = 4000;

const notices = signal<Notice[]>([]);
let last = 0;

/** Show a report of an action, with a link to its result. */
export function say(text: string, link?: { href: string; text: string }): void {
  last += 1;
  notices.value = [...notices.value, { id: last, text, link }].slice(-LONGEST);
}

/** Show a report that goes by itself: the user loses nothing without it. */
export function sayBriefly(text: string): void {
  say(text);
  const id = last;
  window.setTimeout(() => dismiss(id), BRIEF_MS);
}

function dismiss(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

export function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map(({ id, text, link }) => (
        <p key={id} class="notice">
          <Icon of={CircleCheck} />
          <span class="notice-text">{text}</span>
          {link && <a href={link.href}>{link.text}</a>}
          <IconButton of={X} label="Dismiss" onClick={() => dismiss(id)} />
        </p>
      ))}
    </div>
  );
}
