/** How to continue a run: the console runs no graphs, so it shows the line that does. */
import { Command } from "../../parts/command.tsx";
import { pythonLine, typescriptLine } from "./continue_lines.ts";
import "./what_next.css";

export function ContinueRun({ threadId }: { threadId: string }) {
  return (
    <div class="continue-run">
      <p>Continue the run with this line, in the program that has its graph.</p>
      <Line language="Python" text={pythonLine(threadId)} />
      <Line language="TypeScript" text={typescriptLine(threadId)} />
    </div>
  );
}

function Line({ language, text }: { language: string; text: string }) {
  return (
    <div class="continue-line">
      <span class="quiet">{language}</span>
      <Command text={text} what={`the line of ${language}`} />
    </div>
  );
}
