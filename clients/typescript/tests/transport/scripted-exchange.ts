/** `Exchange` streams whose answers a test scripts, frame by frame. */

import { EventEmitter, once } from "node:events";

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { ConnectError, type HandlerContext } from "@connectrpc/connect";

import {
  AnswerSchema,
  ExchangeResponseSchema,
  type Answer,
  type ExchangeRequest,
  type ExchangeResponse,
  type Frame,
} from "../../src/gen/tuskpoint/v1/checkpoint_service_pb.js";
import { Durability } from "../../src/gen/tuskpoint/v1/checkpoint_pb.js";

type AnswerInit = NonNullable<MessageInitShape<typeof ExchangeResponseSchema>["answers"]>[number];

/** One stream from the server's side. */
export class ScriptedStream {
  /** The client's messages. */
  readonly messages: ExchangeRequest[] = [];
  /** The headers of the stream. */
  readonly headers: Headers;
  readonly #events = new EventEmitter();
  readonly #responses: (ExchangeResponse | ConnectError | "end")[] = [];

  /** @param headers - The headers of the stream. */
  constructor(headers: Headers) {
    this.headers = headers;
  }

  /** The frames received so far. */
  get frames(): Frame[] {
    return this.messages.flatMap((one) => one.frames);
  }

  /** Wait for the given number of frames; return them and later frames of the same message. */
  async received(count: number): Promise<Frame[]> {
    while (this.frames.length < count) {
      await once(this.#events, "request");
    }
    return this.frames;
  }

  /** Send a message with some answers. */
  answer(...answers: AnswerInit[]): void {
    this.#respond(create(ExchangeResponseSchema, { answers }));
  }

  /** Answer frames with the last answer. */
  save(...frames: readonly (Frame | undefined)[]): void {
    this.answer(...frames.flatMap((one) => (one === undefined ? [] : [saved(one)])));
  }

  /** Announce that the server reads nothing more. */
  drain(): void {
    this.#respond(create(ExchangeResponseSchema, { draining: true }));
  }

  /** End the stream, with an error or without. */
  end(error?: ConnectError): void {
    this.#respond(error ?? "end");
  }

  /** Serve the stream until its end. */
  async *serve(requests: AsyncIterable<ExchangeRequest>): AsyncGenerator<ExchangeResponse> {
    void this.#read(requests);
    for (;;) {
      while (this.#responses.length === 0) {
        await once(this.#events, "response");
      }
      const next = this.#responses.shift();
      if (next === "end") {
        return;
      }
      if (next instanceof ConnectError) {
        throw next;
      }
      if (next !== undefined) {
        yield next;
      }
    }
  }

  async #read(requests: AsyncIterable<ExchangeRequest>): Promise<void> {
    try {
      for await (const request of requests) {
        this.messages.push(request);
        this.#events.emit("request");
      }
    } catch {
      // The client or its connection is gone.
    }
    this.#respond("end");
  }

  #respond(response: ExchangeResponse | ConnectError | "end"): void {
    this.#responses.push(response);
    this.#events.emit("response");
  }
}

/** The streams that a client opens, in order. */
export class ScriptedExchange {
  readonly streams: ScriptedStream[] = [];
  readonly #events = new EventEmitter();

  /** The handler of the call. */
  readonly exchange = (
    requests: AsyncIterable<ExchangeRequest>,
    context: Pick<HandlerContext, "requestHeader">,
  ): AsyncGenerator<ExchangeResponse> => {
    const stream = new ScriptedStream(context.requestHeader);
    this.streams.push(stream);
    this.#events.emit("stream");
    return stream.serve(requests);
  };

  /** Wait for the stream with this number, from 0. */
  async opened(index: number): Promise<ScriptedStream> {
    for (;;) {
      const stream = this.streams[index];
      if (stream !== undefined) {
        return stream;
      }
      await once(this.#events, "stream");
    }
  }
}

/** Return a handler that answers each call at once. */
export function answering(respond: (call: Frame["call"]) => AnswerInit["result"]) {
  return async function* (requests: AsyncIterable<ExchangeRequest>) {
    for await (const { frames } of requests) {
      const calls = frames.filter((one) => one.call.case !== "chunk");
      yield {
        answers: calls.map(({ id, call }) => {
          const result = respond(call);
          return { id, last: true, ...(result && { result }) };
        }),
      };
    }
  };
}

/** Return the last answer to a frame: the save is stored, or the requested checkpoint is found. */
export function saved({ id, call }: Frame): Answer {
  const answer = create(AnswerSchema, { id, last: true });
  answer.result = resultOf(call);
  return answer;
}

/** Return the answer of a server on which every call succeeds. */
export function resultOf(call: Frame["call"]): Answer["result"] {
  switch (call.case) {
    case "save": {
      const ref = call.value.checkpoint?.ref;
      return of({
        case: "saved",
        value: { ...(ref && { ref }), durability: call.value.durability },
      });
    }
    case "writes":
      return of({ case: "written", value: { durability: call.value.durability } });
    case "get":
      return of({ case: "got", value: { checkpoint: { ref: call.value.ref ?? {} } } });
    default:
      throw new Error(`a frame has no call: ${call.case}`);
  }
}

/** Return the answer that a save is journaled; `last` follows. */
export function journaled({ id }: Frame): AnswerInit {
  return { id, result: { case: "saved", value: { durability: Durability.JOURNALED } } };
}

function of(result: NonNullable<AnswerInit["result"]>): Answer["result"] {
  const { answers } = create(ExchangeResponseSchema, { answers: [{ result }] });
  return answers[0]?.result ?? { case: undefined };
}

/** Return the test's name for a save: its checkpoint's ID. */
export function nameOf(frame: Frame | undefined): string {
  return frame?.call.case === "save" ? (frame.call.value.checkpoint?.ref?.checkpointId ?? "") : "";
}
