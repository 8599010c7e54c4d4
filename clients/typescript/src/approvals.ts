/** The approvals in a log: which person was asked about a call, and what was decided. */

import type { History, OpenCall, StoredEvent } from "./history.js";

const APPROVAL = "foldlog.approval";

/** A decision about an open call, as the log has it. `event` is its event. */
export interface RecordedDecision {
  event: number;
  approved: boolean;
  by: string;
  reason: string;
  until?: string;
}

/** What the log says about the approval of a call. `shown` is what each question showed. */
export interface Approvals {
  shown: unknown[];
  decision?: RecordedDecision;
}

/** Add an event to the approvals of each call. Returns whether it is about an approval. */
export function noteApproval(approvals: Map<number, Approvals>, event: StoredEvent): boolean {
  const { kind, name, cause } = event as { kind: string; name?: unknown; cause?: unknown };
  if (kind !== "annotation" || name !== APPROVAL || typeof cause !== "number") return false;
  const data = (event["data"] ?? {}) as Record<string, unknown>;
  const known = approvals.get(cause) ?? { shown: [] };
  approvals.set(cause, known);
  if (typeof data["approved"] !== "boolean") known.shown.push(data["shown"]);
  else {
    const { approved, by, reason, until } = data as unknown as RecordedDecision & { until: string | null };
    known.decision = { event: event.id, approved, by, reason, ...(until ? { until } : {}) };
  }
  return true;
}

/** The approvals of the calls from an event on. */
export async function readApprovals(history: History, start: number): Promise<Map<number, Approvals>> {
  const approvals = new Map<number, Approvals>();
  for await (const event of history.events(start)) noteApproval(approvals, event);
  return approvals;
}

/** The decision that holds now: an approval may have ended. */
export function decisionOf({ decision }: Approvals): RecordedDecision | undefined {
  const hasEnded = decision?.approved === true && Date.parse(decision.until ?? "") <= Date.now();
  return hasEnded ? undefined : decision;
}

/** What a model reads about a call that was refused. */
export function refusalOf({ reason, by }: RecordedDecision): string {
  return reason || `${by} refused the call`;
}

/** The question whether to run a call. */
export interface Question {
  /** Who is asked, by default "user". */
  to?: string | undefined;
  /** What the person is shown beside the tool and its arguments, such as the words of an SDK. */
  shown?: Record<string, unknown>;
}

/** Record that a person was asked about a call, once, however often it is called. */
export async function askOnce(history: History, call: OpenCall, { to = "user", shown = {} }: Question): Promise<void> {
  const question = { ...shown, tool: call.tool, arguments: call.arguments };
  await history.askApproval(call, { to, shown: question }, { idempotencyKey: `ask ${call.id}` });
}
