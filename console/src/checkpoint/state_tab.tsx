/** The state of a checkpoint: its channels, with the channels that the step changed first. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import type { Channel } from "@contract/value_pb.js";
import { useMemo, useState } from "preact/hooks";
import { diffLink } from "../links.ts";
import { TextField } from "../parts/fields.tsx";
import { Badge } from "../parts/labels.tsx";
import { Empty } from "../parts/problem.tsx";
import { count, counted, oneLine, visible } from "../words.ts";
import { isOfFramework } from "./describe.ts";
import { changedChannels, parentOf, useParentDifference } from "./parent_difference.ts";
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
  const [filled, others] = useMemo(() => sorted(matching, changed), [matching, changed]);
  const parent = parentOf(checkpoint);
  if (channels.length === 0) {
    return <Empty title="This checkpoint has no channels." />;
  }
  return (
    <>
      <p class="quiet">
        {counted(channels.length, "channel")}
        {changed.size > 0 && `, ${count(changed.size)} changed by this step`}
        {difference.data?.truncated && " (at least)"}
        {parent && checkpoint.ref && (
          <>
            {" · "}
            <a href={diffLink(parent, checkpoint.ref)}>What changed</a>
          </>
        )}
      </p>
      {difference.problem && (
        <p class="quiet">
          What this step changed is not known: {visible(difference.problem.message)}
        </p>
      )}
      {channels.length > MANY && (
        <TextField label="Find a channel" value={words} onInput={setWords} />
      )}
      {matching.length === 0 && <Empty title="No channel has this in its name." />}
      <Channels label="Channels" channels={filled} changed={changed} />
      {others.length > 0 && (
        <details class="values-rest">
          <summary>
            {counted(others.length, "channel")} without a value, or of the framework itself
          </summary>
          <Channels label="Other channels" channels={others} changed={changed} />
        </details>
      )}
    </>
  );
}

/** Return the channels with values of the agent, changed channels first; and all other channels. */
function sorted(channels: Channel[], changed: Set<string>): [Channel[], Channel[]] {
  const shown = (channel: Channel) => dataOf(channel) && !isOfFramework(channel.name);
  const filled = channels.filter(shown);
  const first = filled.filter(({ name }) => changed.has(name));
  const later = filled.filter(({ name }) => !changed.has(name));
  return [[...first, ...later], channels.filter((channel) => !shown(channel))];
}

interface ChannelsProps {
  label: string;
  channels: Channel[];
  changed: Set<string>;
}

function Channels({ label, channels, changed }: ChannelsProps) {
  const [pages, setPages] = useState(1);
  const shown = channels.slice(0, pages * PAGE);
  const left = channels.length - shown.length;
  return (
    <>
      <ul class="values" aria-label={label}>
        {shown.map((channel) => (
          <li key={channel.name}>
            <ValueRow
              name={channel.name}
              data={dataOf(channel)}
              digest={channel.digest}
              marks={
                <>
                  {changed.has(channel.name) && <Badge kind="warn">changed</Badge>}
                  {channel.version && (
                    <span title={`Version ${String(channel.version.kind.value)}`}>
                      v{oneLine(versionText(channel.version), 24)}
                    </span>
                  )}
                </>
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
