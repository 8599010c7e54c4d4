// A proxy for the public suites of the protocol, which send no token and name their streams as they like. A stream of
// foldlog belongs to a conversation, so the proxy puts a conversation into the path, and adds a token.
import http from "node:http";

const CONVERSATIONS = 16;

function conversationOf(path) {
  let sum = 0;
  for (const character of path) sum = (sum + character.charCodeAt(0)) % CONVERSATIONS;
  return `suite-${sum}`;
}

/** Start the proxy, and return it. `prefix` is what the paths of the suite begin with. */
export async function startProxy(prefix) {
  const target = new URL(process.env.FOLDLOG_URL);
  // A connection for each request: the server may close an idle one just when the next request is sent.
  const agent = new http.Agent({ keepAlive: false });
  const proxy = http.createServer((request, response) => {
    const [path, query] = request.url.split("?");
    const name = path.replace(prefix, "");
    const inside = `/v1/stream/${conversationOf(name)}/${name}`;
    const headers = { ...request.headers, host: target.host, authorization: `Bearer ${process.env.FOLDLOG_TOKEN}` };
    const sent = http.request(
      target,
      { agent, method: request.method, path: query === undefined ? inside : `${inside}?${query}`, headers },
      (answer) => {
        const found = { ...answer.headers };
        delete found.connection; // is about the connection to the service
        if (found.location) found.location = found.location.replace(inside, path);
        response.writeHead(answer.statusCode, found);
        answer.pipe(response);
      },
    );
    sent.on("error", () => {
      if (!response.headersSent) response.destroy();
    });
    response.on("close", () => {
      request.unpipe(sent);
      sent.destroy();
      request.resume(); // the service may have answered before it read the whole body
    });
    request.pipe(sent);
  });
  // A test of the suite compares for seconds before it sends its next request on an idle connection.
  proxy.keepAliveTimeout = 600_000;
  await new Promise((listening) => proxy.listen(0, "127.0.0.1", listening));
  return proxy;
}

export function addressOf(proxy) {
  return `http://127.0.0.1:${proxy.address().port}`;
}
