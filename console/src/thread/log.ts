/** The checkpoints of a thread that the page knows, from the listing and the events. */
import { type Checkpoint, Durability } from "@contract/checkpoint_pb.js";
import { EventKind, type ThreadEvent } from "@contract/history_service_pb.js";
import { titleOf } from "../checkpoint/step_title.ts";
import { parsed } from "../checkpoint/values.ts";
import { elapsedMs } from "../words.ts";
import type { Knot } from "./lanes.ts";

export function keyOf(checkpointNs: string, checkpointId: string): string {
  return `${checkpointNs}\0${checkpointId}`;
}

export interface Entry extends Knot {
  checkpoint: Checkpoint;
  checkpointNs: string;
  checkpointId: string;
  /** What the checkpoint is called, on one line: the nodes that ran, if nodes ran. */
  readonly title: string;
}

/** What the page must do after an event, besides the update of the log. */
export type Consequence = "none" | "changed" | "list-again" | "deleted" | "began-again";

export class ThreadLog {
  /** Keys of checkpoints that were handed off while the page was open. */
  readonly handedOff = new Set<string>();
  /** Greatest sequence number that is known to be certified. */
  certified = 0n;
  /** Sequence number of the last change of an effect while the page was open. */
  effects = 0n;
  private readonly entries = new Map<string, Entry>();
  private sorted: Entry[] | undefined;
  private incarnation = 0n;
  private deleted = false;

  get size(): number {
    return this.entries.size;
  }

  find(checkpointNs: string, checkpointId: string): Entry | undefined {
    return this.entries.get(keyOf(checkpointNs, checkpointId));
  }

  /** Return the checkpoints, greatest ID first. */
  newestFirst(): readonly Entry[] {
    this.sorted ??= [...this.entries.values()].sort(newerFirst);
    return this.sorted;
  }

  /**
   * Return the time from the save of the parent, or of the step that ran the subgraph, to the save
   * of a checkpoint, in milliseconds; undefined: the log does not have the parent, or the
   * clock of the server was set back.
   */
  tookMs({ parent, checkpoint }: Entry): number | undefined {
    const from = parent ? this.entries.get(parent)?.checkpoint.createTime : undefined;
    const took = from && checkpoint.createTime ? elapsedMs(from, checkpoint.createTime) : -1;
    return took < 0 ? undefined : took;
  }

  /** Add the entry of a checkpoint, unless a later entry is known. */
  put(checkpoint: Checkpoint): void {
    const entry = entryOf(checkpoint, (key) => this.entries.get(key)?.checkpoint);
    const known = this.entries.get(entry.key);
    if (!known || known.checkpoint.seq <= checkpoint.seq) {
      this.entries.set(entry.key, entry);
      this.sorted = undefined;
    }
  }

  /** Forget the checkpoints that a whole listing did not name. */
  keepOnly(keys: ReadonlySet<string>, listedAt: bigint): void {
    for (const [key, { checkpoint }] of this.entries) {
      if (!keys.has(key) && checkpoint.seq <= listedAt) {
        this.entries.delete(key);
        this.sorted = undefined;
      }
    }
  }

  /** Apply an event of the thread. */
  take(event: ThreadEvent): Consequence {
    const first = this.incarnation === 0n;
    if (this.deleted && event.incarnation > this.incarnation) {
      return "began-again";
    }
    this.incarnation = event.incarnation;
    switch (event.kind) {
      case EventKind.PROGRESS:
        return first ? "changed" : "none";
      case EventKind.CERTIFIED:
        this.certify(event.seq);
        return "changed";
      case EventKind.EFFECT_CHANGED:
        this.effects = event.seq;
        return "changed";
      case EventKind.CHECKPOINTS_DELETED:
      case EventKind.RECOVERED:
        return "list-again";
      case EventKind.THREAD_DELETED:
        this.deleted = true;
        return "deleted";
      default:
        // A checkpoint that was deleted before the event was delivered has no time.
        if (event.checkpoint?.createTime) {
          this.put(event.checkpoint);
        }
        if (event.kind === EventKind.HANDED_OFF && event.checkpoint?.ref) {
          const { checkpointNs, checkpointId } = event.checkpoint.ref;
          this.handedOff.add(keyOf(checkpointNs, checkpointId));
        }
        return "changed";
    }
  }

  private certify(seq: bigint): void {
    this.certified = seq;
    for (const { checkpoint } of this.entries.values()) {
      if (checkpoint.seq <= seq) {
        checkpoint.durability = Durability.CERTIFIED;
      }
    }
  }
}

function newerFirst(one: Entry, other: Entry): number {
  if (one.checkpointId !== other.checkpointId) {
    return one.checkpointId < other.checkpointId ? 1 : -1;
  }
  return one.checkpointNs < other.checkpointNs ? 1 : -1;
}

/** @param find - Returns the checkpoint with a key, if the log has the checkpoint by now. */
function entryOf(checkpoint: Checkpoint, find: (key: string) => Checkpoint | undefined): Entry {
  const checkpointNs = checkpoint.ref?.checkpointNs ?? "";
  const checkpointId = checkpoint.ref?.checkpointId ?? "";
  const metadata = metadataOf(checkpoint);
  const own = checkpoint.parentCheckpointId;
  const caller = own ? undefined : callerOf(checkpointNs, metadata["parents"]);
  const parent = own ? keyOf(checkpointNs, own) : caller;
  return {
    key: keyOf(checkpointNs, checkpointId),
    parent,
    aside: caller !== undefined,
    checkpoint,
    checkpointNs,
    checkpointId,
    get title() {
      return titleOf(checkpoint, parent === undefined ? undefined : find(parent));
    },
  };
}

/**
 * Return the checkpoint of the outer graph from which a subgraph's first checkpoint was reached.
 */
function callerOf(checkpointNs: string, parents: unknown): string | undefined {
  if (typeof parents !== "object" || parents === null) {
    return undefined;
  }
  const around = Object.entries(parents)
    .filter(([ns, id]) => ns !== checkpointNs && typeof id === "string")
    .sort(([one], [other]) => other.length - one.length)[0];
  return around && keyOf(around[0], String(around[1]));
}

/** Return the metadata of a checkpoint; empty if it cannot be read. */
export function metadataOf({ metadataJson }: Checkpoint): Record<string, unknown> {
  const metadata = metadataJson.length > 0 ? parsed(metadataJson) : undefined;
  const json = metadata && "json" in metadata ? metadata.json : null;
  return typeof json === "object" && json !== null ? { ...json } : {};
}
