/**
 * Messages of the AI SDK in foldlog: the `UIMessage`s of a chat, and the `ModelMessage`s of a loop.
 *
 *     const messages = await loadMessages(history);               // for useChat, or a route
 *     await saveMessages(history, messages);                      // in onFinish
 *
 *     const messages = await prepareMessages(held);               // for generateText
 *     await appendMessages(held, (await generateText({ model, messages, tools })).responseMessages);
 *
 * In version 6 of the AI SDK, the messages are `response.messages`. In version 7, this member has only
 * the last step, and no result of a tool that ran after an approval.
 */

export {
  appendMessages,
  type ApprovalOptions,
  type ChatRequest,
  type LoadedChat,
  loadChat,
  loadMessages,
  prepareMessages,
  saveMessages,
  type SaveOptions,
  saveRequest,
} from "./saving.js";
export { type ChatTransportOptions, FoldlogChatTransport, uiMessageStream } from "./streams.js";
export { declareTools, runTools, type RunToolsOptions } from "./tools.js";
