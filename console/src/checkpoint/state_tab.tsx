/** The state of a checkpoint: its channels, with the channels that the step changed first. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import type { Channel } from "@contract/value_pb.js";
import { useMemo, useState } from "preact/hooks";
import { Empty } from "../parts/problem.tsx";
import { count, oneLine, visible } from "../words.ts";
import { isOfFramework } from "./describe.ts";
import { changedChannels, useParentDifference } from "./parent_difference.ts";
import { ValueRow } from "./value_row.tsx";
import { dataOf, versionText } from "./values.ts";

const PAGE = 100; // channels that are shown at a time
const MANY = 12; // channels above which names can be searched

export function StateTab({ checkpoint }: { checkpoint: Checkpoint }) {
  const channels = checkpoint.state?.channels ?? [];
  const told = checkpoint.state?.updatedChannels?.names;
  // The server compares only if the framework did not record the changed channels.
  const difference = useParentDifference(checkpoint, told === undefined && channels.length > 0);
  const changed = useMemo(
    () => new Set(told ?? changedChannels(difference.data)),
    [told, difference.data],
  );
  const [words, setWords] = useState("");
  const matching = useMemo(
    () => channels.filter(({ name }) => name.toLowerCase().includes(words.toLowerCase())),
    [channels, words],
  );
  const groups = useMemo(() => grouped(matching, changed), [matching, changed]);
  if (channels.length === 0) {
    return <Empty title="This checkpoint has no channels." />;
  }
  return (
    <>
      {difference.problem && (
        <p class="quiet">
          What this step changed is not known: {visible(difference.problem.message)}
        </p>
      )}
      {channels.filter(({ name }) => !isOfFramework(name)).length > MANY && (
        <input
          type="search"
          class="channel-search"
          aria-label="Find a channel"
          placeholder={`Find one of ${count(channels.length)} channels`}
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
      )}
      {matching.length === 0 && <Empty title="No channel has this in its name." />}
      <Group title="Changed by this step" channels={groups.changed} />
      <Group
        title={groups.changed.length > 0 ? "Other channels" : "Channels"}
        channels={groups.others}
      />
      <Group title="Without a value" channels={groups.empty} folded />
      <Group title="Framework's own channels" channels={groups.framework} folded />
      {difference.data?.truncated && (
        <p class="quiet">The server compared only a part: more channels may have changed.</p>
      )}
    </>
  );
}

interface Groups {
  changed: Channel[];
  others: Channel[];
  empty: Channel[];
  framework: Channel[];
}

/** Sort channels into the agent's, by whether they have a value and changed, and all others. */
function grouped(channels: readonly Channel[], changed: ReadonlySet<string>): Groups {
  const groups: Groups = { changed: [], others: [], empty: [], framework: [] };
  for (const channel of channels) {
    if (isOfFramework(channel.name)) {
      groups.framework.push(channel);
    } else if (!dataOf(channel)) {
      groups.empty.push(channel);
    } else {
      groups[changed.has(channel.name) ? "changed" : "others"].push(channel);
    }
  }
  return groups;
}

interface GroupProps {
  title: string;
  channels: readonly Channel[];
  folded?: boolean;
}

function Group({ title, channels, folded = false }: GroupProps) {
  if (channels.length === 0) {
    return null;
  }
  const heading = (
    <>
      {title} <span class="tab-count">{count(channels.length)}</span>
    </>
  );
  return folded ? (
    <details class="values-rest">
      <summary>{heading}</summary>
      <Channels label={title} channels={channels} />
    </details>
  ) : (
    <>
      <h3 class="values-title">{heading}</h3>
      <Channels label={title} channels={channels} />
    </>
  );
}

function Channels({ label, channels }: { label: string; channels: readonly Channel[] }) {
  const [pages, setPages] = useState(1);
  const shown = channels.slice(0, pages * PAGE);
  const left = channels.length - shown.length;
  return (
    <>
      <ul class="values" aria-label={label}>
        {shown.map(({ name, content, digest, version }) => (
          <li key={name}>
            <ValueRow
              name={name}
              data={content.case === "value" ? content.value.data : undefined}
              digest={digest}
              facts={
                version && (
                  <span title={`Version ${String(version.kind.value)}`}>
                    version {oneLine(versionText(version), 24)}
                  </span>
                )
              }
            />
          </li>
        ))}
      </ul>
      {left > 0 && (
        <button type="button" onClick={() => setPages(pages + 1)}>
          Show {count(Math.min(PAGE, left))} more of {count(channels.length)}
        </button>
      )}
    </>
  );
}
