/**
 * Follows a thread from a page: shows each change, and the reason if the server refuses. A bundler
 * packs it with @connectrpc/connect, @connectrpc/connect-web and the generated messages.
 */

import { ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { ErrorInfoSchema } from "tuskpoint/rpc/error_details";
import { HistoryService } from "tuskpoint/v1/history_service";

export async function follow({ baseUrl, token, threadId, show, signal }) {
  const authorize = (next) => (request) => {
    if (token) {
      request.header.set("authorization", `Bearer ${token}`);
    }
    return next(request);
  };
  const transport = createConnectTransport({ baseUrl, interceptors: [authorize] });
  const history = createClient(HistoryService, transport);
  try {
    for await (const { frame } of history.watchThread({ threadId }, { signal })) {
      if (frame.case === "event") {
        show(`${frame.value.seq}: ${frame.value.checkpoint?.ref?.checkpointId}`);
      }
    }
  } catch (thrown) {
    const error = ConnectError.from(thrown);
    const [info] = error.findDetails(ErrorInfoSchema);
    show(`${info?.reason ?? "no reason"}: ${error.rawMessage}`);
  }
}
