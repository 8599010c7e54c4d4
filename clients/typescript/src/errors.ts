/** The errors of the client. Each mirrors a problem document (RFC 9457) of the service. */

import type { components } from "./openapi.js";

/** A problem document. `error` is the name of the error in the library; its values are members. */
export type Problem = components["schemas"]["ProblemDetails"] & Record<string, unknown>;

/**
 * The service refused a request, or did not answer. The message has the words of the service, and the
 * members of the problem are properties.
 */
export class FoldlogError extends Error {
  declare readonly status: number;
  readonly problem: Problem;

  constructor(problem: Problem, options?: ErrorOptions) {
    super(inWordsOfClient(problem.detail), options);
    Object.assign(this, problem);
    this.name = new.target.name;
    this.problem = problem;
  }
}

/** What the service says of its requests, in the words of this client. */
const WORDS: [RegExp, string][] = [
  [/(\$\.)?\b(ttl|wait)_s\b/g, "$2S"],
  [/the path \/(effects|events)\b/g, "history.$1()"],
  [/send it to history\.events\(\)/g, "append it with history.appendMessages"],
  [/the path \/replies\b/g, "history.appendReply"],
  [/\/records\b/g, "history.appendRecords"],
  [/send with_forks or detach_forks/g, "pass with_forks or detach_forks to erase"],
  [
    /send the token of the lease in the header Foldlog-Lease/g,
    "call history.lease, and use the history that it passes on",
  ],
];

/** The detail of a problem, with the names of this client. */
function inWordsOfClient(detail: string): string {
  return WORDS.reduce((text, [words, ours]) => text.replace(words, ours), detail);
}

/** The conversation has another version than the request expected. Nothing was appended. */
export class VersionConflict extends FoldlogError {
  declare readonly expected: number;
  declare readonly actual: number;
}

/**
 * The list of messages does not have messages that the chat has, as the list of an old page does.
 * Nothing was saved. `messages` has their ids.
 */
export class ChatConflict extends FoldlogError {
  declare readonly messages: string[];
}

/** A page sent a message or an answer, and the conversation has no reply to it. */
export class NoReply extends FoldlogError {}

/** The idempotency key was used for another request. */
export class IdempotencyConflict extends FoldlogError {}

/** There is no such conversation, or the token may not see it. */
export class ConversationNotFound extends FoldlogError {}

/** The conversation was erased for good. */
export class ConversationErased extends FoldlogError {}

/** Another worker has the lease. */
export class LeaseTaken extends FoldlogError {
  declare readonly worker: string | undefined;
  declare readonly until: string | undefined;
}

/** The lease of this worker has ended. Nothing was written. End this work, and take it again. */
export class LeaseLost extends FoldlogError {}

/** The request is wrong, or an event breaks a rule. */
export class InvalidRequest extends FoldlogError {}

/** There is no token, or the token does not allow this. */
export class NotAllowed extends FoldlogError {}

/**
 * The call may not run now. `decision` says what to do: `none`, ask a person; `refused`, tell the model;
 * `ended`, ask again. See `decide`.
 */
export class NotApproved extends NotAllowed {
  declare readonly decision: "none" | "refused" | "ended";
}

/** The conversation has forks that need its events: erase it with them, or detach them. */
export class ConversationHasForks extends FoldlogError {}

/** There is no reply to read or to end: its events are in the log. */
export class StreamNotFound extends FoldlogError {}

/** A worker writes a reply, or left one unfinished: take the lease, and call `unfinishedReply`. */
export class ReplyUnfinished extends FoldlogError {}

/**
 * The service did not answer, or could not answer, also after the repetitions. The request may have
 * been carried out: repeat an append with the same key.
 */
export class Unavailable extends FoldlogError {}

type ErrorClass = new (problem: Problem, options?: ErrorOptions) => FoldlogError;

/** The errors of statuses that no name tells apart. */
const BY_STATUS: Readonly<Record<number, ErrorClass>> = {
  400: InvalidRequest,
  401: NotAllowed,
  403: NotAllowed,
  404: ConversationNotFound,
  410: ConversationErased,
  412: LeaseLost,
  413: InvalidRequest,
  415: InvalidRequest,
  422: InvalidRequest,
  423: LeaseTaken,
  429: Unavailable,
  502: Unavailable,
  503: Unavailable,
  504: Unavailable,
};

/** The errors of the names that the service gives. */
const BY_NAME: Readonly<Record<string, ErrorClass>> = {
  VersionConflict,
  IdempotencyConflict,
  NotApproved,
  ConversationHasForks,
  StreamNotFound,
  NoSuchVersion: InvalidRequest,
  NoSuchEvent: InvalidRequest,
};

/** The error of a problem: by its name, otherwise by its status. */
export function errorOf(problem: Problem): FoldlogError {
  const known = BY_NAME[problem.error ?? ""] ?? BY_STATUS[problem.status] ?? FoldlogError;
  return new known(problem);
}

/** The service did not answer, or its answer is not complete. */
export function unavailable(detail: string, cause: unknown): Unavailable {
  const problem = { type: "about:blank", title: "no answer", status: 503, detail };
  return new Unavailable(problem, { cause });
}

/** The lease has ended because no renewal was answered in its time. */
export function leaseLost(conversation: string): LeaseLost {
  const detail =
    `conversation ${JSON.stringify(conversation)}: the lease could not be renewed in time;` +
    " nothing more is written under it; take the lease again";
  return new LeaseLost({ type: "about:blank", title: "the lease has ended", status: 412, detail });
}

/** A second reply cannot begin. `cause` is the refusal of the service. */
export function replyUnfinished(conversation: string, cause: FoldlogError): ReplyUnfinished {
  const detail =
    `conversation ${JSON.stringify(conversation)}: a worker writes a reply, or left one unfinished;` +
    " call unfinishedReply() in history.lease, then cut() or continue() it";
  return new ReplyUnfinished({ ...cause.problem, detail }, { cause });
}

/** The list of a page lacks messages with these ids, or has changed them. */
export function chatConflict(messages: string[]): ChatConflict {
  const names = messages.map((id) => JSON.stringify(id)).join(", ");
  const detail =
    `the list changes or leaves out messages of the chat: ${names}; nothing was saved; load the chat again,` +
    " or pass the `version` of its loadChat as `expectedVersion` to take these messages back";
  return new ChatConflict({ type: "about:blank", title: "the chat has other messages", status: 409, detail, messages });
}

/** The conversation has another version than the one that the messages were made of. */
export function versionConflict(conversation: string, expected: number, actual: number): VersionConflict {
  const detail =
    `conversation ${JSON.stringify(conversation)}: version ${actual}, and not the expected version ${expected};` +
    " nothing was saved; load the chat again";
  return new VersionConflict({ type: "about:blank", title: "another version", status: 409, detail, expected, actual });
}

/** Nothing follows what a page sent. */
export function noReply(conversation: string): NoReply {
  const detail =
    `conversation ${JSON.stringify(conversation)}: no reply was begun to what was sent, and no worker holds the lease;` +
    " look whether the server failed, or waits for a decision about a call";
  return new NoReply({ type: "about:blank", title: "no reply", status: 504, detail });
}
