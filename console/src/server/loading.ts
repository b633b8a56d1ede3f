/** Loading for a view: once, again on demand, and again by itself while the server is away. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { isCancelled, type Problem, problemOf } from "./problems.ts";
import { signIns } from "./session.ts";

const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 8000;

export interface Loaded<T> {
  /** The last loaded data; it stays during a reload. */
  data: T | undefined;
  /** The failure of the last attempt. */
  problem: Problem | undefined;
  loading: boolean;
  /** Reloads the data. */
  reload: () => void;
}

/**
 * Call `load` when the view appears and whenever `inputs` or `versions` change.
 *
 * With other inputs the view shows other data, so the loaded data is dropped. Other versions mean
 * that the data may have changed: it stays until the reload, together with any text that the user
 * types into it.
 *
 * `load` gets a signal that cancels it, and must pass the signal to its calls.
 */
export function useLoad<T>(
  load: (signal: AbortSignal) => Promise<T>,
  inputs: readonly unknown[],
  versions: readonly unknown[] = [],
): Loaded<T> {
  const [state, setState] = useState<Omit<Loaded<T>, "reload">>({
    data: undefined,
    problem: undefined,
    loading: true,
  });
  const [round, setRound] = useState(0);
  const retries = useRef(0);
  const reload = useCallback(() => {
    retries.current = 0;
    setRound((before) => before + 1);
  }, []);
  const key = JSON.stringify(inputs);
  const version = JSON.stringify(versions);
  const shown = useRef(key);
  useEffect(() => {
    const leaving = new AbortController();
    let timer = 0;
    // The data of other inputs does not belong to the current inputs.
    const fresh = shown.current !== key;
    shown.current = key;
    setState((before) => ({
      data: fresh ? undefined : before.data,
      problem: fresh ? undefined : before.problem,
      loading: true,
    }));
    load(leaving.signal).then(
      (data) => {
        retries.current = 0;
        if (!leaving.signal.aborted) {
          setState({ data, problem: undefined, loading: false });
        }
      },
      (error: unknown) => {
        if (leaving.signal.aborted || isCancelled(error)) {
          return;
        }
        const problem = problemOf(error);
        setState((before) => ({ data: before.data, problem, loading: false }));
        if (problem.passing) {
          const wait = Math.min(FIRST_RETRY_MS * 2 ** retries.current, LONGEST_RETRY_MS);
          retries.current += 1;
          timer = window.setTimeout(() => setRound((before) => before + 1), wait);
        }
      },
    );
    return () => {
      leaving.abort();
      window.clearTimeout(timer);
    };
  }, [key, version, round, signIns.value]);
  return { ...state, reload };
}
