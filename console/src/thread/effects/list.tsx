/** The effects of a thread: work in the outside world, and what a person must decide about it. */
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { type Effect, EffectState } from "@contract/effect_service_pb.js";
import { useEffect, useState } from "preact/hooks";
import { Badge, When } from "../../parts/labels.tsx";
import { effects } from "../../server/calls.ts";
import { useLoad } from "../../server/loading.ts";
import { counted, oneLine } from "../../words.ts";
import { ResolveDialog } from "./resolve_dialog.tsx";

const MOST = 1000; // effects that a server returns at once

const STATES: Record<number, [string, string]> = {
  [EffectState.RUNNING]: ["running", ""],
  [EffectState.DONE]: ["done", "good"],
  [EffectState.FAILED]: ["failed", "bad"],
};

/** @param version - Changes when an effect may have changed. */
export function Effects({ threadId, version }: { threadId: string; version: unknown }) {
  const { data = [], reload } = useLoad(
    async (signal) => (await effects.listEffects({ threadId, pageSize: MOST }, { signal })).effects,
    [threadId],
    [version],
  );
  // No event says that the time of an attempt is over.
  useEffect(() => {
    const ends = data.flatMap(({ state, expireTime }) =>
      state === EffectState.RUNNING && expireTime ? [timestampMs(expireTime)] : [],
    );
    const wait = Math.max(Math.min(...ends) - Date.now(), 0) + 1000;
    const timer = ends[0] && window.setTimeout(reload, wait);
    return () => window.clearTimeout(timer);
  }, [data]);
  const [deciding, setDeciding] = useState<Effect>();
  const open = data.filter(({ state }) => !STATES[state]).length;
  return data[0] ? (
    <details class="card family" open={open > 0}>
      <summary>
        {counted(data.length, "effect")} {open > 0 && <Badge kind="warn">{open} unknown</Badge>}
      </summary>
      <ul>
        {data.map((effect) => (
          <Row key={effect.key} effect={effect} onDecide={() => setDeciding(effect)} />
        ))}
      </ul>
      {deciding && (
        <ResolveDialog
          effect={deciding}
          onClose={() => {
            setDeciding(undefined);
            reload();
          }}
        />
      )}
    </details>
  ) : null;
}

function Row({ effect, onDecide }: { effect: Effect; onDecide: () => void }) {
  const { key, name, state, attempt, idempotencyKey, error } = effect;
  const [text, kind] = STATES[state] ?? ["unknown", "warn"];
  return (
    <li class="family-step effect">
      <Badge kind={kind}>{text}</Badge>
      <span>
        {oneLine(name || key)}
        {error && `: ${oneLine(error)}`}
        {kind === "warn" && (
          <>
            {`. It may be done: look in the outside world for idempotency key ${idempotencyKey}. `}
            <button
              type="button"
              onClick={onDecide}
              aria-label={`Decide ${oneLine(name || key, 60)}`}
            >
              Decide
            </button>
          </>
        )}
      </span>
      <span class="quiet">
        attempt {attempt}, <When time={effect.endTime ?? effect.attemptTime} />
      </span>
    </li>
  );
}
