// Imports the sessions of OpenCode into foldlog, and starts the server of foldlog's tools. After a compaction, tells the
// model what it can ask foldlog.
import { spawn } from "node:child_process"

const COMMAND = "foldlog hook"
const SERVER = { command: "foldlog", args: ["mcp"] }

// Run the hook of foldlog, and wait for its end. OpenCode goes on if the hook fails.
const run = (event: string, sessionID: string, cwd: string) =>
  new Promise<void>((done) => {
    const hook = spawn(COMMAND, { shell: true, stdio: ["pipe", "ignore", "ignore"] })
    hook.on("error", () => done())
    hook.on("close", () => done())
    hook.stdin.on("error", () => {})
    hook.stdin.end(JSON.stringify({ program: "opencode", hook_event_name: event, session_id: sessionID, cwd }))
  })

export const Foldlog = async ({ directory }: { directory: string }) => {
  const compacted = new Set<string>()
  return {
    config: async (config: { mcp?: Record<string, unknown> }) => {
      const server = { type: "local", command: [SERVER.command, ...SERVER.args] }
      config.mcp = { foldlog: server, ...config.mcp }
    },
    event: async ({ event }: { event: { type: string; properties?: { sessionID?: string } } }) => {
      const session = event.properties?.sessionID
      if (session === undefined) return
      if (event.type === "session.idle") await run("Stop", session, directory)
      if (event.type === "session.compacted") {
        compacted.add(session)
        await run("PostCompact", session, directory)
      }
    },
    "experimental.chat.system.transform": async (input: { sessionID?: string }, output: { system: string[] }) => {
      if (input.sessionID === undefined || !compacted.has(input.sessionID)) return
      output.system.push(
        "foldlog: earlier events left your context in a compaction, but foldlog still has them. Before you ask the user " +
          "again about something, use the foldlog tools `dropped` and `recall` " +
          `(conversation ${input.sessionID}).`,
      )
    },
  }
}
