/** Files and outputs of the AI SDK as the content of an event, and back. */

import { isObject, type Json } from "../json.js";

export type Content = string | Json[];

const AUDIO = /^data:audio\/(wav|mp3);base64,(.*)$/s;

/** The part of a content that shows a file. `url` is an address or a data URL. */
export function filePart(url: string, mediaType: string, filename?: unknown): Json {
  if (mediaType.startsWith("image")) return { type: "image_url", image_url: { url } };
  const audio = AUDIO.exec(url);
  if (audio !== null) return { type: "input_audio", input_audio: { data: audio[2], format: audio[1] } };
  const name = typeof filename === "string" ? { filename } : {};
  if (url.startsWith("data:")) return { type: "file", file: { ...name, file_data: url } };
  return { type: "input_file", ...name, file_url: url };
}

/** The part of a content that shows a file that a provider keeps. `reference` maps providers to ids. */
export function referencePart(reference: unknown, filename?: unknown): Json {
  const ids = isObject(reference) ? reference : { openai: reference };
  const name = typeof filename === "string" ? { filename } : {};
  return { type: "file", file: { ...name, file_id: String(ids["openai"] ?? Object.values(ids)[0]) } };
}

/** The address or data URL in a part of a content, or undefined if it has none. */
export function urlOf(part: Json | undefined): string | undefined {
  if (part === undefined) return undefined;
  const { image_url: image, input_audio: audio, file } = part as Record<string, Json | undefined>;
  const url = isObject(image) ? image["url"] : (image ?? part["file_url"] ?? file?.["file_data"]);
  if (typeof url === "string") return url;
  return audio === undefined ? undefined : `data:audio/${audio["format"]};base64,${audio["data"]}`;
}

/** The part of a `ModelMessage` for a part of a content. `rest` are the members that the log keeps beside it. */
export function modelPart(part: Json, rest: Json = {}): Json {
  if (typeof part["text"] === "string") return { type: "text", text: part["text"], ...rest };
  const url = urlOf(part);
  const file = (part["file"] ?? part) as Json;
  const name = typeof file["filename"] === "string" ? { filename: file["filename"] } : {};
  if (url === undefined) {
    const id = file["file_id"];
    if (id === undefined) return { type: "text", text: `[${String(part["type"])}]`, ...rest };
    return { type: "file", data: { openai: String(id) }, mediaType: "application/pdf", ...name, ...rest };
  }
  if (rest["type"] === "image" || (rest["type"] === undefined && part["type"] === "image_url")) {
    return { type: "image", image: url, ...rest };
  }
  const mediaType = /^data:([^;,]+)/.exec(url)?.[1] ?? "application/pdf";
  return { type: "file", data: url, mediaType, ...name, ...rest };
}

/** The text of a tool's output. */
export function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value ?? null);
}

/** The JSON value of a text, or undefined if it is none: a condenser may have replaced the text. */
export function jsonOf(text: unknown): { value: unknown } | undefined {
  if (typeof text !== "string") return undefined;
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return undefined;
  }
}
