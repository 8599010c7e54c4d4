/** The events of a conversation, as the store keeps them: a union that `kind` tells apart. */

import type { components } from "./openapi.js";

type Schemas = components["schemas"];

/** Members of every event. */
export interface Common {
  id: number;
  timestamp: string | null;
  source?: "user" | "agent" | "environment";
  shown?: boolean;
  cause?: number;
  meta?: Record<string, unknown>;
  redacted?: Schemas["Redacted"];
}

type Stored<Name extends keyof Schemas> = Omit<Schemas[Name], keyof Common> & Common;

/** The kinds of events. A newer service may have more members. */
type Kinds =
  | Stored<"SystemMessage">
  | Stored<"Message">
  | Stored<"Action">
  | Stored<"Observation">
  | Stored<"Annotation">
  | Stored<"CondensationRequest">
  | Stored<"CondensationAction">
  | (Common & { kind: "condensation_summary"; content: string; summary_of?: number })
  | (Common & { kind: "retraction"; version: number; reason?: string })
  | (Common & { kind: "document_changes"; changed: Record<string, unknown>; others?: Record<string, number> });

type Open<T> = T extends unknown ? T & Record<string, unknown> : never;

export type StoredEvent = Open<Kinds>;

/** An action that waits for its result. */
export type OpenCall = Extract<StoredEvent, { kind: "action" }>;
