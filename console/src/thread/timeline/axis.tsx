/** The head of the timeline: folded gaps by name, and the time of day. */
import { Hourglass, type IconNode, Unplug } from "lucide";
import { useMemo } from "preact/hooks";
import { Icon } from "../../parts/icon.tsx";
import type { Gap } from "./layout/gaps.ts";
import { type Sight, xOf } from "./layout/pieces.ts";
import { ticksOf } from "./layout/ticks.ts";

const LETTER = 6.6; // pixels of a character, about
const AROUND = 22; // pixels around the text of a name
const WITH_ICON = 42;
const BETWEEN = 6; // pixels between two names
const TOUCH = 12; // pixels of its fold that a name reaches over
const LAST_TICK = 88; // pixels that the text of the last tick needs
const LEAST = 14; // pixels of a fold that has a name
const WEIGHTS: Record<Gap["kind"], number> = { later: 0, wait: 1, break: 2 };

const ICONS: Record<Gap["kind"], IconNode | undefined> = {
  later: undefined,
  wait: Hourglass,
  break: Unplug,
};

interface AxisProps {
  gaps: readonly Gap[];
  sight: Sight;
}

export function Axis({ gaps, sight }: AxisProps) {
  const { scale, zoom, left, width } = sight;
  const names = useMemo(() => namesOf(gaps, sight), [gaps, scale, zoom, left, width]);
  const ticks = useMemo(
    () => ticksOf(scale, zoom, Math.max(0, left), left + width - LAST_TICK),
    [scale, zoom, left, width],
  );
  return (
    <>
      {gaps.length > 0 && (
        <div class="timeline-gaps">
          {names.map(({ gap, x, width: room, text }) => {
            const icon = ICONS[gap.kind];
            const style = { left: `${x}px`, width: `${room}px` };
            return (
              <span key={gap.from} class={`timeline-gap ${gap.kind}`} style={style}>
                {icon && <Icon of={icon} />}
                {text}
              </span>
            );
          })}
        </div>
      )}
      <div class="timeline-ticks">
        {ticks.map(({ x, text }) => (
          <span key={x} class="timeline-tick" style={{ left: `${x - left}px` }}>
            {text}
          </span>
        ))}
      </div>
    </>
  );
}

interface Name {
  gap: Gap;
  text: string;
  /** The left edge, in pixels, and its limits: a name touches its fold. */
  x: number;
  least: number;
  most: number;
  width: number;
}

/**
 * Return the names of the visible gaps. Where they would overlap they move aside, then they are
 * shortened to the duration, then left out; a gap without a known reason comes last.
 */
function namesOf(gaps: readonly Gap[], sight: Sight): Name[] {
  const names = visibleGaps(gaps, sight)
    .filter(({ from, to }) => xOf(sight, to) - xOf(sight, from) >= LEAST)
    .map((gap) => nameFor(gap, gap.text, sight));
  for (let at = 0; at < names.length; ) {
    const [before, name] = [names[at - 1], names[at]];
    if (!name) {
      break;
    }
    name.x = Math.max(name.least, before ? before.x + before.width + BETWEEN : 0);
    if (name.x <= name.most) {
      at += 1;
      continue;
    }
    const least = leastOf(names.slice(0, at + 1), ({ gap, text }) => text !== gap.short);
    if (least) {
      names[names.indexOf(least)] = nameFor(least.gap, least.gap.short, sight);
    } else {
      names.splice(before && weight(before) < weight(name) ? at - 1 : at, 1);
    }
    at = 0;
  }
  centre(names, sight);
  return names;
}

/** Return the name of the least weight of those that hold, the last of several. */
function leastOf(names: readonly Name[], holds: (name: Name) => boolean): Name | undefined {
  return names
    .filter(holds)
    .reduce<Name | undefined>(
      (least, name) => (least && weight(least) < weight(name) ? least : name),
      undefined,
    );
}

function weight({ gap }: Name): number {
  return WEIGHTS[gap.kind];
}

/** Moves names to the middle of their folds, as far as the next name leaves room. */
function centre(names: Name[], { width }: Sight): void {
  let room = width;
  for (const name of names.reverse()) {
    const middle = (name.least + name.most) / 2;
    name.x = Math.max(name.x, Math.min(middle, name.most, room - name.width));
    room = name.x - BETWEEN;
  }
}

function nameFor(gap: Gap, text: string, sight: Sight): Name {
  const width = text.length * LETTER + (ICONS[gap.kind] ? WITH_ICON : AROUND);
  const [from, to] = [xOf(sight, gap.from), xOf(sight, gap.to)];
  const least = Math.max(0, from + TOUCH - width);
  return { gap, text, x: 0, least, most: Math.min(to - TOUCH, sight.width - width), width };
}

/** Return the gaps that reach into the shown part of the time. */
export function visibleGaps(gaps: readonly Gap[], { scale, zoom, left, width }: Sight): Gap[] {
  const [first, last] = [scale.timeAt(left, zoom), scale.timeAt(left + width, zoom)];
  let [low, high] = [0, gaps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    [low, high] = (gaps[middle]?.to ?? 0) < first ? [middle + 1, high] : [low, middle];
  }
  const visible: Gap[] = [];
  for (let index = low; index < gaps.length; index += 1) {
    const gap = gaps[index];
    if (!gap || gap.from > last) {
      break;
    }
    visible.push(gap);
  }
  return visible;
}
