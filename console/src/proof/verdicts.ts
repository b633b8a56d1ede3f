/** The verdicts of a verification: collected as they arrive, counted, and sorted. */
import {
  type CheckpointVerdict,
  Verdict,
  type VerificationTotal,
} from "@contract/thread_service_pb.js";
import { count, counted } from "../words.ts";

/** Kinds of verdicts; kinds that need a person come first. */
export const KINDS = [Verdict.FAIL, Verdict.UNVERIFIED, Verdict.RETRACTED, Verdict.PASS] as const;
export type Kind = (typeof KINDS)[number];

/** Name and colour of each kind. */
export const KIND_WORDS: Record<Kind, [string, string]> = {
  [Verdict.FAIL]: ["failed", "bad"],
  [Verdict.UNVERIFIED]: ["not certified", "warn"],
  [Verdict.RETRACTED]: ["deleted", ""],
  [Verdict.PASS]: ["passed", "good"],
};

export class VerdictLog {
  private readonly byKind = new Map<Verdict, CheckpointVerdict[]>();

  take(verdict: CheckpointVerdict): void {
    const known = this.byKind.get(verdict.verdict);
    if (known) {
      known.push(verdict);
    } else {
      this.byKind.set(verdict.verdict, [verdict]);
    }
  }

  of(kind: Kind): readonly CheckpointVerdict[] {
    return this.byKind.get(kind) ?? [];
  }

  count(kind: Kind): number {
    return this.of(kind).length;
  }

  get size(): number {
    return KINDS.reduce((sum, kind) => sum + this.count(kind), 0);
  }

  /** Return a page of the verdicts; verdicts that need a person come first. */
  page(kinds: readonly Kind[], first: number, length: number): CheckpointVerdict[] {
    const verdicts: CheckpointVerdict[] = [];
    let skipped = 0;
    for (const kind of kinds) {
      const all = this.of(kind);
      const begin = Math.max(0, first - skipped);
      verdicts.push(...all.slice(begin, begin + length - verdicts.length));
      skipped += all.length;
      if (verdicts.length === length) {
        break;
      }
    }
    return verdicts;
  }

  /**
   * Number of verdicts on checkpoints that cannot be stored or were lost, according to the server.
   */
  get gaps(): number {
    return this.of(Verdict.UNVERIFIED).filter(({ detail }) => detail !== "").length;
  }
}

export interface Outcome {
  kind: "good" | "warn" | "bad";
  title: string;
  /** The meaning of the outcome, and the next action. */
  sentences: string[];
  /** Whether a flush may improve the outcome. */
  flush: boolean;
}

/** Return the meaning of a whole verification. */
export function outcomeOf(log: VerdictLog, total: VerificationTotal): Outcome {
  const { passed, failed, unverified, chainDetail, journalDetails } = total;
  if (failed > 0n || chainDetail || journalDetails.length > 0) {
    return damaged(total);
  }
  const gaps = log.gaps;
  const waiting = Number(unverified) - gaps;
  const sentences: string[] = [];
  if (passed > 0n) {
    const matches = "stored byte matches the recorded hashes, the manifest and the journal.";
    const some = `${counted(passed, "checkpoint")} passed: every ${matches}`;
    sentences.push(unverified > 0n ? some : `Every ${matches}`);
  }
  if (waiting > 0) {
    sentences.push(
      `${counted(waiting, "checkpoint")} changed since ${waiting === 1 ? "it was" : "they were"} last certified, so there is nothing to compare yet. Flush, then verify again.`,
    );
  }
  if (gaps > 0) {
    sentences.push(
      `${counted(gaps, "checkpoint")} could not be stored; the reasons are below. The server retries by itself, and with each flush.`,
    );
  }
  if (unverified > 0n) {
    const title = passed > 0n ? "Not everything is certified yet" : "Nothing is certified yet";
    return { kind: "warn", title, sentences, flush: true };
  }
  if (passed === 0n) {
    const nothing = "The thread has no checkpoint that is stored, so nothing was compared.";
    return {
      kind: "warn",
      title: "There is nothing to verify",
      sentences: [nothing],
      flush: false,
    };
  }
  return { kind: "good", title: verified(passed, passed), sentences, flush: false };
}

function verified(passed: bigint, all: bigint): string {
  return `${count(passed)} of ${counted(all, "hash", "hashes")} verified`;
}

/** Return the outcome in a few words, such as "53 of 53 hashes verified". */
export function sealText({ kind, title }: Outcome, total: VerificationTotal): string {
  const { passed, failed, unverified } = total;
  const hashes = verified(passed, passed + failed + unverified);
  switch (kind) {
    case "good":
      return title;
    case "bad":
      return `${title}: ${hashes}`;
    case "warn":
      return passed > 0n ? `${hashes}, ${count(unverified)} not certified` : title;
  }
}

function damaged({ passed, failed, chainDetail, journalDetails }: VerificationTotal): Outcome {
  const sentences: string[] = [];
  if (failed > 0n) {
    sentences.push(
      `${counted(failed, "checkpoint")} failed: the stored bytes are not those that were recorded, or are missing. ${counted(passed, "checkpoint")} passed.`,
    );
  }
  if (chainDetail) {
    sentences.push(`The chain from the catalog to the segments is broken: ${chainDetail}`);
  }
  const [first] = journalDetails;
  if (first) {
    const more =
      journalDetails.length > 1 ? ` The report has ${journalDetails.length - 1} more.` : "";
    sentences.push(
      `The journal of the server is damaged: ${first}.${more} What is certified is repaired when it is read.`,
    );
  }
  sentences.push(
    "Keep the blobs as they are, and check the disk or the blob store. Values that the journal still has can be read; restore the others from a copy of the store.",
  );
  return { kind: "bad", title: "Verification failed", sentences, flush: false };
}
