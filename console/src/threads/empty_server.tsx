/** The first steps on a server without threads, with the address that clients take. */
import { Command } from "../parts/command.tsx";
import { Loading, ProblemNote } from "../parts/problem.tsx";
import { admin } from "../server/calls.ts";
import { useLoad } from "../server/loading.ts";
import { token } from "../server/session.ts";

export function EmptyServer() {
  const { data, problem, reload } = useLoad((signal) => admin.getServerInfo({}, { signal }), []);
  if (problem) {
    return <ProblemNote problem={problem} retry={reload} />;
  }
  if (!data) {
    return <Loading what="the address of the server" />;
  }
  const address = `${window.location.hostname}:${data.grpcPort}`;
  return (
    <section class="card first-steps" aria-labelledby="first-steps">
      <h2 id="first-steps">No threads yet</h2>
      <p>
        Clients save to this server at <code>{address}</code>
        {token.value && (
          <>
            , with a token in the environment variable <code>TUSKPOINT_TOKEN</code>
          </>
        )}
        .
      </p>
      <h3>You have a LangGraph agent</h3>
      <p>Compile the graph with a checkpointer on this server:</p>
      <Command text={checkpointerFor(address)} what="the checkpointer" />
      <h3>You want to try it</h3>
      <p>This program makes a first thread. It needs no model and no account:</p>
      <Command text={programFor(address)} what="the program" />
      <h3>What happens next</h3>
      <p>
        The thread appears here by itself as soon as the program saves its first checkpoint. Open
        the thread to see each step and what the step changed.
      </p>
    </section>
  );
}

function checkpointerFor(address: string): string {
  return `from tuskpoint import TuskPointSaver

agent = graph.compile(checkpointer=TuskPointSaver("${address}"))`;
}

function programFor(address: string): string {
  return `from langgraph.graph import START, MessagesState, StateGraph
from tuskpoint import TuskPointSaver

graph = StateGraph(MessagesState)
graph.add_node("greet", lambda state: {"messages": [("ai", "Hello!")]})
graph.add_edge(START, "greet")
with TuskPointSaver("${address}") as saver:
    agent = graph.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "first"}}
    agent.invoke({"messages": [("user", "Hi")]}, config)`;
}
