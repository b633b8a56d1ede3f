/** All threads: threads that wait for a person first, then failed threads, then all others. */
import type { Thread } from "@contract/thread_pb.js";
import type { RefObject } from "preact";
import { useMemo, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { searchLink, type ThreadFilter, threadsLink } from "../links.ts";
import { useLive } from "../operations/live.ts";
import { Empty, Loading, Trouble } from "../parts/problem.tsx";
import { Title } from "../parts/title.tsx";
import { useLoad } from "../server/loading.ts";
import { count, oneLine } from "../words.ts";
import { EmptyServer } from "./empty_server.tsx";
import { Chips, Find } from "./find.tsx";
import { filterOf, GROUPS, type Group } from "./groups.ts";
import { FIRST_PAGE, listThreads, NAMED_AMONG, type Sizes } from "./listing.ts";
import { hasWords } from "./names.ts";
import { useSteadyGroups } from "./steady.ts";
import { ThreadTable } from "./table.tsx";
import "./page.css";

const REFRESH_MS = 5000;
const SHARE = 10; // the page keeps the server busy for at most a 10th of the time
const PAGE = 500;

export function ThreadsPage() {
  const { query, route } = useLocation();
  const filter = filterOf(query);
  const { q, state, since, agent, label } = filter;
  const [sizes, setSizes] = useState<Sizes>({});
  const listed = q ? forNames(sizes) : sizes;
  const loaded = useLoad(
    (signal) => listThreads(filter, listed, signal),
    [state, since, agent, label],
    [listed],
  );
  const { data, problem, reload } = loaded;
  const seconds = Math.ceil(Math.max(REFRESH_MS, (data?.tookMs ?? 0) * SHARE) / 1000);
  useLive(loaded, seconds * 1000);
  const { groups, table } = useSteadyGroups(data);
  const change = (changed: ThreadFilter) => route(threadsLink({ ...filter, ...changed }), true);
  const isFiltered = [state, since, agent, label].some(Boolean);
  const isEmpty = groups?.every((group) => group.threads.length === 0);
  const isNew = isEmpty && !isFiltered;
  // A large table is drawn again only if it differs, and not when a refresh begins.
  const found = useMemo(
    () =>
      groups && (
        <Found
          groups={groups}
          words={q}
          sizes={sizes}
          table={table}
          onMore={(of) =>
            setSizes((before) => ({ ...before, [of]: (before[of] ?? FIRST_PAGE) + PAGE }))
          }
        />
      ),
    [groups, q, sizes, table],
  );
  return (
    <>
      <div class="page-head">
        <Title text="Threads" />
        {data && !problem && <span class="quiet live">Refreshes every {seconds} s</span>}
      </div>
      {!isNew && (
        <Find filter={filter} onChange={change} onSearch={(words) => route(searchLink(words))} />
      )}
      <Chips filter={filter} onChange={change} />
      {problem && <Trouble problem={problem} isShown={data !== undefined} retry={reload} />}
      {!groups && !problem && <Loading what="threads" />}
      {isNew && <EmptyServer />}
      {isEmpty && isFiltered && (
        <Empty title="No thread matches the filter.">
          <a href={threadsLink()}>All threads</a>
        </Empty>
      )}
      {!isEmpty && found}
    </>
  );
}

/** Return the sizes of groups that are large enough to filter by name. */
function forNames(sizes: Sizes): Sizes {
  return Object.fromEntries(
    GROUPS.map(({ state }) => [state, Math.max(NAMED_AMONG, sizes[state] ?? 0)]),
  );
}

interface FoundProps {
  groups: Group[];
  /** Words that the names must have. */
  words: string;
  /** Most threads of each group to show. */
  sizes: Sizes;
  table: RefObject<HTMLDivElement | null>;
  onMore: (state: Group["state"]) => void;
}

function Found({ groups, words, sizes, table, onMore }: FoundProps) {
  const isMatch = ({ threadId }: Thread) => hasWords(threadId, words);
  const named = groups.map((group) => ({ ...group, threads: group.threads.filter(isMatch) }));
  const found = named.filter(({ threads }) => threads.length > 0);
  return (
    <>
      {words.trim() && <Named words={words} groups={groups} isFound={found.length > 0} />}
      {found.length > 0 && (
        <ThreadTable groups={found} words={words} sizes={sizes} table={table} onMore={onMore} />
      )}
    </>
  );
}

interface NamedProps {
  words: string;
  groups: Group[];
  isFound: boolean;
}

/** What a filter by name found nothing of, or does not cover. */
function Named({ words, groups, isFound }: NamedProps) {
  const isPart = groups.some(({ more }) => more);
  const limit = isPart
    ? `Names of the ${count(NAMED_AMONG)} threads of each group that changed last.`
    : "";
  if (isFound) {
    return limit ? <p class="quiet">{limit}</p> : null;
  }
  return (
    <Empty title={`No name has “${oneLine(words, 60)}”.`}>
      <p>{limit}</p>
      <a href={searchLink(words.trim())}>Search what happened</a>
    </Empty>
  );
}
