/** The results in one table: a line for each checkpoint, with the searched words marked. */
import { View } from "@contract/checkpoint_pb.js";
import type { SearchResult } from "@contract/search_service_pb.js";
import { GitCommitHorizontal } from "lucide";
import { metadataOf } from "../checkpoint/describe.ts";
import { graphName, titleOf } from "../checkpoint/step_title.ts";
import { checkpointLink } from "../links.ts";
import { Icon } from "../parts/icon.tsx";
import { Unseen, When } from "../parts/labels.tsx";
import { Rows } from "../parts/rows.tsx";
import { checkpoints } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { oneLine, visible } from "../words.ts";
import { excerpt, isMarked, pieces } from "./marking.ts";

const EXCERPT = 200; // characters of the text in a row
const TOOLTIP = 2000;
const PARTIAL = "Only the latest part of the text is indexed.";

interface ResultTableProps {
  results: readonly SearchResult[];
  /** The searched words. */
  words: string;
  metric: string;
}

export function ResultTable({ results, words, metric }: ResultTableProps) {
  return (
    <div class="card thread-table">
      <div class="thread-columns" aria-hidden="true">
        <span>Thread</span>
        <span>What ran, and the text that matches</span>
        <span>Agent</span>
        <span class="number">Distance</span>
        <span class="number">Step</span>
        <span class="number">Saved</span>
      </div>
      <Rows label="Checkpoints, nearest first">
        {results.map((result) => (
          <Result
            key={`${result.ref?.threadId} ${result.ref?.checkpointNs} ${result.ref?.checkpointId}`}
            {...{ result, words, metric }}
          />
        ))}
      </Rows>
    </div>
  );
}

interface ResultProps extends Omit<ResultTableProps, "results"> {
  result: SearchResult;
}

function Result({ result, words, metric }: ResultProps) {
  const { threadId = "", checkpointNs = "", checkpointId = "" } = result.ref ?? {};
  const ref = { threadId, checkpointNs, checkpointId };
  const { data } = useLoad(
    async (signal) =>
      (await checkpoints.getCheckpoint({ ref, view: View.STEP }, { signal })).checkpoint,
    [ref],
  );
  const graph = graphName(checkpointNs);
  const title = data ? titleOf(data) : "";
  const texts = [result.content, result.summary].filter(Boolean);
  const text = texts.find((one) => isMarked(one, words)) ?? texts[0] ?? "";
  const told = visible(excerpt(text, words, TOOLTIP)) + (result.truncated ? `\n\n${PARTIAL}` : "");
  return (
    <li>
      <a class="row" href={checkpointLink(ref)}>
        <span class="thread-name" title={visible(threadId)}>
          {oneLine(threadId)}
        </span>
        <span class="thread-reason" title={told}>
          <Icon of={GitCommitHorizontal} />
          {title && text !== title && (
            <span class="result-title">{graph ? `${graph} › ${title}` : title}</span>
          )}
          <span class="thread-text">
            {text ? (
              <Marked text={oneLine(excerpt(text, words, EXCERPT))} words={words} />
            ) : (
              "No text."
            )}
          </span>
          {result.truncated && <Unseen> {PARTIAL}</Unseen>}
        </span>
        <span class="thread-agent">{oneLine(data?.agentId ?? "")}</span>
        <span class="number quiet" title={`Distance (${metric}); smaller is nearer`}>
          <Unseen>distance </Unseen>
          {result.distance.toFixed(4)}
        </span>
        <span class="number quiet">{data && oneLine(metadataOf(data).step, 6)}</span>
        <span class="number thread-age">
          <Unseen>saved </Unseen>
          <When time={data?.createTime} short />
        </span>
      </a>
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
