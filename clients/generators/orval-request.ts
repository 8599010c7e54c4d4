/** Sends the requests of the client that orval makes: it asks for such a function. */

import type { Service } from "./turn";

let service: Service;

export function useService(used: Service): void {
  service = used;
}

export async function request<T>(path: string, init: RequestInit): Promise<T> {
  const headers = new Headers(init.headers);
  headers.set("authorization", `Bearer ${service.token}`);
  const response = await fetch(service.url + path, { ...init, headers });
  const text = await response.text();
  const isJson = response.headers.get("content-type")?.includes("json");
  return { status: response.status, data: isJson ? JSON.parse(text) : text, headers: response.headers } as T;
}
