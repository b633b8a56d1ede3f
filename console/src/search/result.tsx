/** One checkpoint of the results: its words marked, and more details on demand. */
import { View } from "@contract/checkpoint_pb.js";
import type { SearchResult } from "@contract/search_service_pb.js";
import { useState } from "preact/hooks";
import { checkpointLink, threadLink } from "../links.ts";
import { type Json, JsonTree } from "../parts/json/json_tree.tsx";
import { Badge, Identifier, When } from "../parts/labels.tsx";
import { Loading, ProblemNote } from "../parts/problem.tsx";
import { checkpoints } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { moment, oneLine, visible } from "../words.ts";
import { excerpt, pieces } from "./marking.ts";

const EXCERPT = 280; // characters of the text that are shown at first

interface ResultProps {
  result: SearchResult;
  /** The searched words. */
  words: string;
  metric: string;
}

export function Result({ result, words, metric }: ResultProps) {
  const { threadId = "", checkpointNs = "", checkpointId = "" } = result.ref ?? {};
  const ref = { threadId, checkpointNs, checkpointId };
  const [open, setOpen] = useState(false);
  const title = result.summary || result.content;
  return (
    <li class="result">
      <a class="row" href={checkpointLink(ref)}>
        <span class="row-name">
          {title ? (
            <Marked text={oneLine(title, EXCERPT)} words={words} />
          ) : (
            <span class="quiet">without summary</span>
          )}
        </span>
        <span class="row-side result-distance" title={`Distance (${metric}); smaller is nearer`}>
          distance {result.distance.toFixed(4)}
        </span>
      </a>
      <div class="result-more">
        {result.summary && result.content && !open && (
          <p class="result-text">
            <Marked
              text={oneLine(excerpt(result.content, words, EXCERPT), 2 * EXCERPT)}
              words={words}
            />
          </p>
        )}
        <p class="result-place">
          <span>
            thread <a href={threadLink(threadId)}>{oneLine(threadId, 80)}</a>
          </span>
          {checkpointNs && <span>graph {oneLine(checkpointNs, 80)}</span>}
          <span>
            checkpoint{" "}
            <Identifier id={checkpointId} what="checkpoint ID" href={checkpointLink(ref)} />
          </span>
          {result.truncated && <Badge kind="warn">indexed in part</Badge>}
          <button type="button" class="plain" aria-expanded={open} onClick={() => setOpen(!open)}>
            details<span class="unseen"> of {oneLine(title, 60) || checkpointId}</span>
          </button>
        </p>
        {open && <More result={result} words={words} />}
      </div>
    </li>
  );
}

function Marked({ text, words }: { text: string; words: string }) {
  return (
    <>
      {pieces(text, words).map((piece, index) =>
        piece.marked ? <mark key={index}>{piece.text}</mark> : piece.text,
      )}
    </>
  );
}

/** Details that are loaded and shown on demand. */
function More({ result, words }: { result: SearchResult; words: string }) {
  const ref = result.ref;
  const { data, problem, reload } = useLoad(
    async (signal) => {
      const request = { ...(ref ? { ref } : {}), view: View.ENTRY };
      return (await checkpoints.getCheckpoint(request, { signal })).checkpoint;
    },
    [ref?.threadId, ref?.checkpointNs, ref?.checkpointId],
  );
  return (
    <div class="result-details">
      {problem && <ProblemNote problem={problem} retry={reload} />}
      {!data && !problem && <Loading what="the checkpoint" />}
      {data && (
        <dl class="facts">
          <dt>Saved</dt>
          <dd>
            {data.createTime && moment(data.createTime)} (<When time={data.createTime} />)
          </dd>
          {data.label && (
            <>
              <dt>Label</dt>
              <dd>{oneLine(data.label)}</dd>
            </>
          )}
          {data.agentId && (
            <>
              <dt>Agent</dt>
              <dd>{oneLine(data.agentId)}</dd>
            </>
          )}
        </dl>
      )}
      <JsonTree name="metadata" value={metadataOf(result.metadataJson)} />
      {result.truncated && (
        <p class="quiet">
          The new part of its state has more text than the index takes. Only the latest part, below,
          was searched: open the checkpoint to see all of it.
        </p>
      )}
      {result.content && (
        <p class="result-text whole">
          <Marked text={visible(result.content)} words={words} />
        </p>
      )}
    </div>
  );
}

function metadataOf(bytes: Uint8Array): Json {
  const text = new TextDecoder().decode(bytes) || "{}";
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text; // text that is not JSON is shown unchanged
  }
}
