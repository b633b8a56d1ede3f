/** The services of the contract, over the Connect protocol, on the server of this page. */
import { Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { AdminService } from "@contract/admin_service_pb.js";
import { CheckpointService } from "@contract/checkpoint_service_pb.js";
import { EffectService } from "@contract/effect_service_pb.js";
import { HandoffService } from "@contract/handoff_service_pb.js";
import { HistoryService } from "@contract/history_service_pb.js";
import { SearchService } from "@contract/search_service_pb.js";
import { SnapshotService } from "@contract/snapshot_service_pb.js";
import { ThreadService } from "@contract/thread_service_pb.js";
import { refused, signIns, token } from "./session.ts";

/**
 * Ask for another token if a call's token was refused, and nobody has signed in since the call
 * started.
 */
function noteRefusal(error: unknown, begun: number): void {
  const problem = ConnectError.from(error);
  if (problem.code === Code.Unauthenticated && signIns.value === begun) {
    refused.value = problem.rawMessage;
  }
}

async function* noting<T>(messages: AsyncIterable<T>, begun: number): AsyncIterable<T> {
  try {
    yield* messages;
  } catch (error) {
    noteRefusal(error, begun);
    throw error;
  }
}

const credential: Interceptor = (next) => async (request) => {
  const begun = signIns.value;
  if (token.value) {
    request.header.set("authorization", `Bearer ${token.value}`);
  }
  try {
    const answer = await next(request);
    return answer.stream ? { ...answer, message: noting(answer.message, begun) } : answer;
  } catch (error) {
    noteRefusal(error, begun);
    throw error;
  }
};

const transport = createConnectTransport({
  baseUrl: window.location.origin,
  useBinaryFormat: true,
  interceptors: [credential],
});

export const admin = createClient(AdminService, transport);
export const checkpoints = createClient(CheckpointService, transport);
export const effects = createClient(EffectService, transport);
export const handoffs = createClient(HandoffService, transport);
export const history = createClient(HistoryService, transport);
export const search = createClient(SearchService, transport);
export const snapshots = createClient(SnapshotService, transport);
export const threads = createClient(ThreadService, transport);
