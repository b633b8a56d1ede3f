/** What the palette finds: actions, pages and threads by words, and the search. Pure. */
import type { Thread } from "@contract/thread_pb.js";
import { type IconNode, ListTree, Search } from "lucide";
import type { Effect } from "../actions/action.ts";
import type { Offer } from "../actions/offers.ts";
import { searchLink, threadLink } from "../links.ts";
import type { PageName } from "../pages.ts";
import { oneLine } from "../words.ts";

export type Entry = Effect & {
  /** Differs for each entry. */
  id: string;
  name: string;
  icon: IconNode;
  /** The keys that do the same without the palette. */
  keys?: string[];
  /** Whether the entry deletes something. */
  isDangerous?: boolean;
  thread?: Thread;
};

export interface Group {
  title: string;
  entries: Entry[];
}

/** Threads that are listed at most; more words find the others. */
export const MOST_THREADS = 8;

/** What the palette looks through. */
export interface Findable {
  offers: Offer[];
  pages: PageName[];
  /** Commands of every page. */
  commands: Entry[];
  /** Threads, latest change first. */
  threads: Thread[];
}

/** Return the entries with all words of a query, in groups; no words find everything. */
export function groupsFor(query: string, { offers, pages, commands, threads }: Findable): Group[] {
  const actions = offers.map(({ title, actions }) => ({
    title,
    entries: actions.map((action): Entry => {
      const { name, icon, key, place } = action;
      const keys = key ? { keys: [key] } : {};
      return {
        ...effectOf(action),
        id: `${title} ${name}`,
        name,
        icon,
        ...keys,
        isDangerous: place === "danger",
      };
    }),
  }));
  const go = [...pages.map((page): Entry => ({ ...page, id: `page ${page.href}` })), ...commands];
  const named = [...actions, { title: "Pages", entries: go }].map(({ title, entries }) => ({
    title,
    entries: startingFirst(
      query,
      entries.filter(({ name }) => hasWords(name, query)),
    ),
  }));
  const groups = [
    ...named,
    { title: "Threads", entries: threadsFor(query, threads).map(threadEntry) },
    { title: "Search", entries: query.trim() ? [searchEntry(query.trim())] : [] },
  ];
  return groups.filter(({ entries }) => entries.length > 0);
}

/** Return the first threads with all words of a query in their name. */
export function threadsFor(query: string, threads: Thread[]): Thread[] {
  const found: Thread[] = [];
  for (const thread of threads) {
    if (found.length === MOST_THREADS) {
      break;
    }
    if (hasWords(thread.threadId, query)) {
      found.push(thread);
    }
  }
  return found;
}

/** Return whether a name has all words of a query, in any order. */
export function hasWords(name: string, query: string): boolean {
  const text = name.toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

function startingFirst(query: string, entries: Entry[]): Entry[] {
  const start = query.trim().toLowerCase();
  const starts = ({ name }: Entry) => name.toLowerCase().startsWith(start);
  return [...entries.filter(starts), ...entries.filter((entry) => !starts(entry))];
}

function effectOf({ href, run }: Effect): Effect {
  return href === undefined ? { run } : { href };
}

function threadEntry(thread: Thread): Entry {
  const { threadId } = thread;
  return {
    id: `thread ${threadId}`,
    name: oneLine(threadId),
    icon: ListTree,
    href: threadLink(threadId),
    thread,
  };
}

function searchEntry(query: string): Entry {
  return {
    id: "search",
    name: `Search for “${oneLine(query, 80)}” in what happened`,
    icon: Search,
    href: searchLink(query),
  };
}
