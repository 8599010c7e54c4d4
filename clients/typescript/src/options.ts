/** What the methods of a conversation take and give. */

import type { StoredEvent } from "./events.js";
import type { MessagesByDialect } from "./messages.js";
import type { components } from "./openapi.js";
import type { Body, InConversation } from "./transport.js";
import type { Signal } from "./web.js";

type Schemas = components["schemas"];
export type AppendableEvent = NonNullable<Body<"post", InConversation<"/events">>["events"]>[number];
export type Appended = Schemas["AppendedEvents"];
export type RecordedEvent = Schemas["RecordedEvent"];
export type ShownView = Schemas["ShownView"];
export type Dialect = NonNullable<Body<"post", InConversation<"/prepare">>["dialect"]>;

export type { OpenCall, StoredEvent } from "./events.js";

/** A View, with the messages of a dialect. */
export type ViewIn<D extends Dialect> = Omit<ShownView, "messages" | "events"> & {
  events: StoredEvent[];
  messages: MessagesByDialect[D];
};

export interface KeyedOptions {
  /**
   * A repeated write with this key is carried out once. The client makes a key for its own
   * repetitions; choose one if your program may repeat the write, also after a crash.
   */
  idempotencyKey?: string;
  signal?: Signal;
}

export interface WriteOptions extends KeyedOptions {
  /** Append only if the conversation has this version. Raises `VersionConflict` otherwise. */
  expectedVersion?: number;
}

export interface ReplyOptions extends WriteOptions {
  /** The version of the View that was sent to the model. */
  viewVersion?: number;
  /** The `model_request` of the View that had the messages; the reply names it then. */
  request?: ShownView["model_request"];
  /** The tools and other parameters that were sent beside the messages. */
  tools?: Record<string, unknown>[];
  parameters?: Record<string, unknown>;
  cost?: number;
  meta?: Record<string, unknown>;
}

export interface ToolResultOptions extends KeyedOptions {
  isError?: boolean;
  extras?: Record<string, unknown>;
}

export interface RecordsOptions extends WriteOptions {
  dedupe?: boolean;
}
