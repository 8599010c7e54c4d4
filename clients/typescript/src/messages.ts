/** The messages of a View, in the forms that the SDKs of models take. */

interface Text {
  type: "text";
  text: string;
}

/** A message for `openai.chat.completions.create`. */
export type ChatMessage =
  | { role: "system"; content: string }
  | { role: "user"; content: string | ChatPart[] }
  | { role: "assistant"; content: string | null; tool_calls?: ChatToolCall[] }
  | { role: "tool"; tool_call_id: string; content: string | Text[] };

export type ChatPart =
  | Text
  | { type: "image_url"; image_url: { url: string; detail?: "auto" | "low" | "high" } }
  | { type: "input_audio"; input_audio: { data: string; format: "wav" | "mp3" } }
  | { type: "file"; file: { file_data?: string; file_id?: string; filename?: string } };

export interface ChatToolCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

/** A message for `anthropic.messages.create`. Its `system` is that of the View. */
export interface AnthropicMessage {
  role: "user" | "assistant";
  content: AnthropicBlock[];
}

export type AnthropicBlock =
  | AnthropicInput
  | { type: "thinking"; thinking: string; signature: string }
  | { type: "redacted_thinking"; data: string }
  | { type: "tool_use"; id: string; name: string; input: Record<string, unknown> }
  | { type: "tool_result"; tool_use_id: string; content?: AnthropicInput[]; is_error?: boolean };

type Cached<T> = T & { cache_control?: { type: "ephemeral" } };

export type AnthropicInput =
  | Cached<Text>
  | Cached<{
      type: "image";
      source: { type: "base64"; media_type: ImageType; data: string } | { type: "url"; url: string };
    }>
  | Cached<{
      type: "document";
      source: { type: "base64"; media_type: "application/pdf"; data: string } | { type: "url"; url: string };
    }>;

type ImageType = "image/jpeg" | "image/png" | "image/gif" | "image/webp";

/** The messages of each dialect. */
export interface MessagesByDialect {
  openai: ChatMessage[];
  "openai-reasoning": (ChatMessage & { reasoning_content?: string })[];
  anthropic: AnthropicMessage[];
  "anthropic-cached": AnthropicMessage[];
  litellm: Record<string, unknown>[];
  responses: Record<string, unknown>[];
}
